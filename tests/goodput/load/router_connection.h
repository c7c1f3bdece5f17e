#pragma once

#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.grpc.pb.h"
#include "tests/goodput/load/stop_flag.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Connections of the load to one router, or to all that its name stands for (each connection takes
// them in turn). Nothing that a router has begun is sent again: what is lost stays lost, and is
// counted.
class RouterConnection {
 public:
  struct Options {
    std::string endpoint;  // host:port
    std::string model;     // empty: the one that is served
    int channels = 1;
    absl::Duration connect_timeout;  // for all of Open
  };
  // Unavailable, naming the endpoint and why, when it can't be reached in time; NotFound and
  // InvalidArgument when the model is not there, or not told and there are several; Cancelled when
  // `stop` is set meanwhile.
  static absl::StatusOr<std::unique_ptr<RouterConnection>> Open(const Options& options,
                                                                StopFlag* stop);

  const ServerInfo& server() const { return server_; }
  v1::Inference::Stub* stub(size_t index) { return stubs_[index % stubs_.size()].get(); }

  // Every id of the vocabulary that is no special token: those whose text stays when special ones
  // are left out. A few calls per 4,096 ids and per special token.
  absl::StatusOr<std::vector<int32_t>> OrdinaryTokens();

  // The tokens of a prompt that is sent as this text. Fails as the call does; Cancelled once `stop`
  // is set.
  absl::StatusOr<std::vector<int32_t>> Tokenize(const std::string& text, StopFlag* stop);

 private:
  RouterConnection() = default;
  absl::Status Connect(const Options& options, StopFlag* stop);
  absl::Status AskForModel(const Options& options);
  absl::Status AddOrdinary(int32_t begin, int32_t end, int* calls, std::vector<int32_t>* ordinary);

  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs_;
  ServerInfo server_;
};

}  // namespace baton
