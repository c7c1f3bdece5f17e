#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.grpc.pb.h"
#include "tests/goodput/load/request_stream.h"
#include "tests/goodput/load/server_connection.h"
#include "tests/goodput/load/stop_flag.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Connections of a load to one router, or to all routers that its name resolves to. In the second
// case each connection uses the routers in turn. A request that a router has begun is never sent
// again: if it is lost, it counts as lost.
class RouterConnection final : public ServerConnection {
 public:
  struct Options {
    std::string endpoint;  // HOST:PORT.
    std::string model;     // Model to ask for; empty: the only model that the router serves.
    int channels = 1;
    absl::Duration connect_timeout;  // Limit for the whole of Open().
  };
  // The calls carry the key in $BATON_API_KEY, if there is one. Returns Unavailable, with the
  // endpoint and the reason, if the router can't be reached in time; Unauthenticated if the router
  // wants another key; NotFound if it does not serve the model; InvalidArgument if no model is
  // named and the router does not serve exactly one, or if no call can carry the key; Cancelled if
  // `stop` is set meanwhile.
  static absl::StatusOr<std::unique_ptr<RouterConnection>> Open(const Options& options,
                                                                StopFlag* stop);

  const ServerInfo& server() const override { return server_; }

  // Returns every id of the vocabulary that is not a special token. The text of such an id remains
  // when special tokens are left out. Makes a few calls per 4,096 ids and per special token.
  absl::StatusOr<std::vector<int32_t>> OrdinaryTokens() override;

  // Returns the tokens that the router makes of `text`. Returns the error of the call if it fails,
  // and Cancelled once `stop` is set.
  absl::StatusOr<std::vector<int32_t>> Tokenize(const std::string& text, StopFlag* stop) override;
  bool GivesTokenIds() const override { return true; }
  OutgoingRequest Prepare(v1::GenerateRequest request) const override {
    return {.message = std::move(request)};
  }
  // The requests use the connections in turn.
  std::unique_ptr<RequestStream> NewStream(RequestRecord record,
                                           RequestStream::Clock::time_point start,
                                           bool keep_token_ids,
                                           RequestStream::OnEnded on_ended) override;
  void Remark(std::vector<std::string>*) const override {}

 private:
  RouterConnection() = default;
  absl::Status Connect(const Options& options, StopFlag* stop);
  absl::Status AskForModel(const Options& options);
  absl::Status AddOrdinary(int32_t begin, int32_t end, int* calls, std::vector<int32_t>* ordinary);

  std::string api_key_;  // Empty: none. Never written to a log or a result.
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs_;
  ServerInfo server_;
};

}  // namespace baton
