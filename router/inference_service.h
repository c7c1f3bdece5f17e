#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "baton/v1/inference.pb.h"
#include "common/base/mutex.h"
#include "router/call_limit.h"
#include "router/core/core_events.h"
#include "router/encode_pool.h"
#include "router/generate_call.h"
#include "router/request_check.h"

namespace baton {

// Metadata in which a trusted client names the caller.
inline constexpr char kTenantMetadata[] = "x-baton-tenant";

// The service that clients call. Its methods take raw bytes, so that a message that does not parse
// (for example text that is not UTF-8) gets a clear InvalidArgument. Requests are checked and
// tokenised on gRPC's threads, and those with long texts on the threads of an EncodePool. Requests
// that pass go to the core.
class InferenceService final : public OneRequestService {
 public:
  using Refused = std::function<void(const v1::GenerateRequest&, const absl::Status&)>;
  // All four functions must be callable on any thread.
  // - `room` is called before a request is looked at, with the number of open calls of its caller
  //   and the number of callers with open calls. Returns an error if the queue is full of calls of
  //   this caller.
  // - `submit` passes a checked request to the core. Returns false if the core's inbox is full.
  // - `tell` passes all other events to the core.
  // - `refused` gets each request that does not reach the core, with the reason.
  // `pool` outlives all calls. `text_calls` limits the number of Tokenize and Detokenize calls at
  // the same time, and kTextsInAnswers limits the bytes of their answers. A call counts until its
  // answer has been sent. A call whose client sets no deadline gets the default one. A client must
  // read an answer before the deadline, and within the default deadline; otherwise the call is
  // cancelled.
  // `naming_secret` is the cluster's attach token, with which the blocks of prompts get their
  // names; not set: they get none. `connections` are those of the server.
  InferenceService(ServedModel model, RequestLimits limits, Connections* connections,
                   std::optional<std::string> naming_secret, CallLimit* text_calls,
                   EncodePool* pool, std::function<absl::Status(size_t calls, size_t callers)> room,
                   std::function<bool(CoreEvent)> submit, std::function<void(CoreEvent)> tell,
                   Refused refused);

  // Returns the call of a request; null if its RPC is over. Any thread.
  std::shared_ptr<GenerateCall> Find(RequestKey key);
  // Sets what ListModels reports, and the layout for which blocks get their names. Any thread.
  void SetServing(ServingChanged serving);
  // Number of RPCs that gRPC has not ended yet. Any thread.
  size_t calls();

 private:
  class UnaryCall;
  // Makes the object of a Generate call.
  GenerateCall* NewCall(grpc::CallbackServerContext* context);
  // Takes the request of a call. `status` says what is wrong with the call itself.
  void Begin(const std::shared_ptr<GenerateCall>& call, RequestKey key, const std::string& caller,
             absl::Status status, absl::Time deadline, const grpc::ByteBuffer& bytes);
  // Adds a method with a single answer.
  template <typename Request>
  void AddUnary(const char* name, CallLimit* limit);
  // Return the answer in its bytes.
  absl::StatusOr<grpc::ByteBuffer> Answer(const v1::TokenizeRequest& request,
                                          const UnaryCall& call);
  absl::StatusOr<grpc::ByteBuffer> Answer(const v1::DetokenizeRequest& request,
                                          const UnaryCall& call);
  absl::StatusOr<grpc::ByteBuffer> Answer(const v1::ListModelsRequest& request,
                                          const UnaryCall& call);
  // Texts of more bytes are tokenised on the pool's threads.
  static constexpr size_t kLongText = 16 << 10;
  // Answers of all Tokenize and Detokenize calls together may have as many bytes as this number of
  // texts of the max size, and kBytesBeside more for the other fields; one alone may have more. The
  // model's context does not limit a text to tokenise, and an answer may have six times the bytes
  // of its text: each token takes its id, its bytes and the length of these.
  static constexpr size_t kTextsInAnswers = 6;
  static constexpr size_t kBytesBeside = 1 << 20;
  // Runs `work` on a text of `bytes` bytes, now or on a thread of the pool.
  absl::Status RunOnText(const std::string& caller, size_t bytes, std::function<void()> work);
  // Returns the name of the caller. Returns InvalidArgument if the name that it gave is too long.
  absl::StatusOr<std::string> CallerOf(const grpc::CallbackServerContext& context) const;
  // Checks a request and passes it to the core.
  void Admit(const std::shared_ptr<GenerateCall>& call, RequestKey key,
             const v1::GenerateRequest& request, const std::string& caller, absl::Time arrival,
             absl::Time deadline);
  // Names the blocks of the request's prompt, unless the request uses no cached KV.
  void NameBlocks(CheckedRequest* checked);
  const ServedModel model_;
  const RequestLimits limits_;
  const std::optional<std::string> naming_secret_;
  CallLimit* const text_calls_;
  EncodePool* const pool_;
  const std::function<absl::Status(size_t calls, size_t callers)> room_;
  const std::function<bool(CoreEvent)> submit_;
  const std::function<void(CoreEvent)> tell_;
  const Refused refused_;
  std::atomic<RequestKey> next_key_ = 1;
  std::atomic<size_t> answer_bytes_ = 0;  // Answers of Tokenize and Detokenize calls.
  Mutex mutex_;
  std::map<RequestKey, std::shared_ptr<GenerateCall>> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> calls_of_ ABSL_GUARDED_BY(mutex_);  // Open calls of each caller.
  // Never null. Shared, so that naming the blocks of a prompt needs neither a copy nor the lock.
  std::shared_ptr<const ServingChanged> serving_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const ServingChanged>();
};

}  // namespace baton
