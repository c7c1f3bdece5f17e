#include "common/rpc/rpc_server.h"

#include <algorithm>
#include <cerrno>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include "absl/strings/str_cat.h"
#include "common/base/listen_check.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/limits.h"
#include "grpc/health/v1/health.pb.h"

namespace baton {

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const Options& options) {
  // The address is checked before gRPC tries to listen, because gRPC's own warning does not say
  // what failed.
  RETURN_IF_ERROR(CheckListen(options.listen));
  LogGrpc();
  // Plugins are process-wide switches of gRPC, so setting them again changes nothing.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  // Links the generated code of the health service. gRPC answers health checks without that code,
  // but reflection needs it to describe the service.
  grpc::health::v1::HealthCheckRequest::descriptor();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Lets peers ping often, because pings are how they soon notice a dead worker.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  if (options.connection_age != absl::InfiniteDuration()) {
    builder.AddChannelArgument(
        GRPC_ARG_MAX_CONNECTION_AGE_MS,
        static_cast<int>(absl::ToInt64Milliseconds(
            std::clamp(options.connection_age, absl::Milliseconds(1), absl::Hours(24)))));
  }
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  auto server = std::unique_ptr<RpcServer>(new RpcServer);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || port == 0) {
    // The address could be bound a moment ago, so another program has just taken it.
    return ListenError(options.listen, EADDRINUSE);
  }
  server->address_ = WithPort(options.listen, port);
  return server;
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetServing(absl::string_view service, bool serving) {
  if (auto* health = server_->GetHealthCheckService()) {
    health->SetServingStatus(std::string(service), serving);
  }
}

void RpcServer::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(absl::ToChronoTime(SystemNow() + grace));
  server_->Wait();
  server_ = nullptr;
}

}  // namespace baton
