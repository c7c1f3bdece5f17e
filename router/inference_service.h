#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "baton/v1/inference.pb.h"
#include "common/base/mutex.h"
#include "common/metrics/counter.h"
#include "router/core/core_events.h"
#include "router/encode_pool.h"
#include "router/generate_call.h"
#include "router/request_check.h"
#include "router/shared_budget.h"

namespace baton {

// Metadata in which a trusted client names the caller.
inline constexpr char kTenantMetadata[] = "x-baton-tenant";

// The service that clients call. Its methods take raw bytes, so that a message that does not parse
// (for example text that is not UTF-8) gets a clear InvalidArgument. Requests are checked and
// tokenised on gRPC's threads, and those with long texts on the threads of an EncodePool. Requests
// that pass go to the core.
class InferenceService final : public OneRequestService {
 public:
  // A request that does not reach the core.
  struct Refusal {
    enum class Cause {
      kRequest,    // The request itself, its deadline, or its client.
      kQueue,      // The queue is full, because the workers have too much to do.
      kNoMemory,   // Open requests have too many bytes, or the core's inbox is full.
      kTexts,      // Too many texts wait to be tokenised.
      kNeverCame,  // The call ended before its request came.
    };
    const v1::GenerateRequest& request;  // Empty if it never came, or could not be parsed.
    const std::string& caller;
    const absl::Status& status;
    Cause cause;
  };
  using Refused = std::function<void(const Refusal&)>;
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
  // cancelled. `prompts` limits the bytes of the requests that the core has; it outlives the core
  // and its inbox.
  // `naming_secret` is the cluster's attach token, with which the blocks of prompts get their
  // names; not set: they get none. `connections` are those of the server.
  InferenceService(ServedModel model, RequestLimits limits, Connections* connections,
                   std::optional<std::string> naming_secret, SharedBudget* text_calls,
                   EncodePool* pool, SharedBudget* prompts,
                   std::function<absl::Status(size_t calls, size_t callers)> room,
                   std::function<bool(CoreEvent)> submit, std::function<void(CoreEvent)> tell,
                   Refused refused);

  // Returns the call of a request; null if its RPC is over. Any thread.
  std::shared_ptr<GenerateCall> Find(RequestKey key);
  // Sets what ListModels reports, and the layout for which blocks get their names. Any thread.
  void SetServing(ServingChanged serving);
  // Number of RPCs that gRPC has not ended yet. Any thread.
  size_t calls();
  // Tokenize and Detokenize calls that were refused because of a limit that they share. Any thread.
  const Counter& text_calls_refused() const { return text_calls_refused_; }

 private:
  class UnaryCall;
  // Makes the object of a Generate call.
  GenerateCall* NewCall(grpc::CallbackServerContext* context);
  // Takes the request of a call. `status` says what is wrong with the call itself.
  void Begin(const std::shared_ptr<GenerateCall>& call, RequestKey key, const std::string& caller,
             absl::Status status, absl::Time deadline, const grpc::ByteBuffer& bytes);
  // Adds a method with a single answer.
  template <typename Request>
  void AddUnary(const char* name, SharedBudget* limit);
  // Ends a call with the answer to the request in `bytes`, and clears them. If `counts` is true,
  // the answer counts among those that have not been read. Returns an error, with which the caller
  // must end the call, if there is no answer.
  template <typename Request>
  absl::Status Respond(UnaryCall* call, const std::string& caller, bool counts,
                       grpc::ByteBuffer* bytes);
  // Return the answer in its bytes.
  absl::StatusOr<grpc::ByteBuffer> Answer(const v1::TokenizeRequest& request,
                                          const UnaryCall& call);
  absl::StatusOr<grpc::ByteBuffer> Answer(const v1::DetokenizeRequest& request,
                                          const UnaryCall& call);
  absl::StatusOr<grpc::ByteBuffer> Answer(const v1::ListModelsRequest& request,
                                          const UnaryCall& call);
  // Texts of more bytes are tokenised on the pool's threads.
  static constexpr size_t kLongText = 16 << 10;
  // Limits the memory for answers to Tokenize and Detokenize calls that clients have not read yet.
  // All together may take the bytes of kTextsInAnswers texts of the max size, and kBytesBeside. If
  // there is no other, an answer may be larger. One caller gets three quarters, which is six texts:
  // the answer to one text may have six times its bytes, since it has the id, the bytes and the
  // number of bytes of each token.
  static constexpr size_t kTextsInAnswers = 8;
  static constexpr size_t kBytesBeside = 1 << 20;
  // Runs `work` on a text of `text_bytes` bytes, now or on a thread of the pool. `bytes` is the
  // memory that it takes until it runs.
  absl::Status RunOnText(const std::string& caller, size_t text_bytes, size_t bytes,
                         EncodePool::Work work);
  // Returns the name of the caller. Returns InvalidArgument if the name that it gave is too long.
  absl::StatusOr<std::string> CallerOf(const grpc::CallbackServerContext& context) const;
  // Ends a call whose request does not reach the core.
  void Refuse(GenerateCall* call, const Refusal& refusal);
  // Checks a request and passes it to the core.
  void Admit(const std::shared_ptr<GenerateCall>& call, RequestKey key,
             const v1::GenerateRequest& request, const std::string& caller, absl::Time arrival,
             absl::Time deadline);
  // Names the blocks of the request's prompt, unless the request uses no cached KV.
  void NameBlocks(CheckedRequest* checked);
  const ServedModel model_;
  const RequestLimits limits_;
  const std::optional<std::string> naming_secret_;
  SharedBudget* const text_calls_;
  EncodePool* const pool_;
  SharedBudget* const prompts_;
  const std::function<absl::Status(size_t calls, size_t callers)> room_;
  const std::function<bool(CoreEvent)> submit_;
  const std::function<void(CoreEvent)> tell_;
  const Refused refused_;
  std::atomic<RequestKey> next_key_ = 1;
  SharedBudget answer_bytes_;  // Answers of Tokenize and Detokenize calls.
  Counter text_calls_refused_;
  Mutex mutex_;
  std::map<RequestKey, std::shared_ptr<GenerateCall>> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> calls_of_ ABSL_GUARDED_BY(mutex_);  // Open calls of each caller.
  // Never null. Shared, so that naming the blocks of a prompt needs neither a copy nor the lock.
  std::shared_ptr<const ServingChanged> serving_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const ServingChanged>();
};

}  // namespace baton
