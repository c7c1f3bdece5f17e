#pragma once

#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "common/rpc/connections.h"
#include "common/rpc/one_request_call.h"
#include "router/door/api_keys.h"
#include "router/door/door.h"
#include "router/grpc/generate_call.h"

namespace baton {

// The service that clients call. Its methods take raw bytes, so that a message that does not parse
// (for example text that is not UTF-8) gets a clear InvalidArgument. Requests are checked and
// tokenised by the Door, on gRPC's threads or on those of its pool.
class InferenceService final : public OneRequestService {
 public:
  // `door`, `keys` and `connections`, those of the server, outlive all calls. A call whose client sets no
  // deadline gets the default one. A client must read the answer of a Tokenize or Detokenize call
  // before the deadline, and within the default deadline; otherwise the call is cancelled.
  // `keys` are those that clients need.
  InferenceService(Door* door, Connections* connections, const ApiKeys* keys);

 private:
  class UnaryCall;
  // Makes the object of a Generate call.
  GenerateCall* NewCall(grpc::CallbackServerContext* context);
  // Takes the request of a call. `status` says what is wrong with the call itself.
  void Begin(const Door::Call& call, absl::Status status, absl::Time deadline,
             const grpc::ByteBuffer& bytes);
  // Adds a method with a single answer. A text call is Tokenize or Detokenize.
  template <typename Request>
  void AddUnary(const char* name, bool text_call);
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
  // Returns the name of the caller. Returns Unauthenticated without a key, and InvalidArgument if
  // the name that it gave is too long.
  absl::StatusOr<std::string> CallerOf(const grpc::CallbackServerContext& context) const;

  Door* const door_;
  const ApiKeys* const keys_;
};

}  // namespace baton
