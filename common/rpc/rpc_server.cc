#include "common/rpc/rpc_server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/limits.h"

namespace baton {
namespace {

// Time in which the request of a health check must come.
constexpr absl::Duration kHealthRequestLimit = absl::Seconds(60);

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const Options& options) {
  auto server = std::unique_ptr<RpcServer>(new RpcServer);
  Connections* connections = options.connections;
  if (connections == nullptr) {
    server->own_connections_ = std::make_unique<Connections>(ConnectionLimits{});
    connections = server->own_connections_.get();
  }
  const ConnectionLimits& limits = connections->limits();
  ASSIGN_OR_RETURN(server->acceptor_, ConnectionAcceptor::Listen(options.listen, connections));
  LogGrpc();
  server->health_ = std::make_unique<HealthService>(connections, kHealthRequestLimit);
  std::vector<std::string> names = options.names;
  names.push_back("grpc.health.v1.Health");
  server->reflection_ = std::make_unique<ReflectionService>(connections, std::move(names));
  server->unknown_ = std::make_unique<UnknownMethods>(connections);
  grpc::ServerBuilder builder;
  builder.RegisterService(server->health_.get());
  builder.RegisterService(server->reflection_.get());
  builder.RegisterCallbackGenericService(server->unknown_.get());
  auto handler = std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor>(
      builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          grpc::InsecureServerCredentials()));
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  connections->SetMaxMessage(options.max_message_bytes);
  // gRPC 1.51 decompresses a message whole before it looks at the length, and a few kilobytes may
  // become gigabytes.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.streams);
  // Without these two, gRPC takes up to 10 MB of each stream before somebody reads it, if the
  // connection is fast.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kUnreadBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(limits.handshake)));
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
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) {
    return absl::InternalError(absl::StrCat("can't listen on ", options.listen, ": gRPC refuses"));
  }
  server->address_ = WithPort(options.listen, server->acceptor_->port());
  server->acceptor_->Start(
      [handler](int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.fd = fd;
        handler->HandleNewConnection(&connection);
      },
      [health = server->health_.get(), reflection = server->reflection_.get()](absl::Time now) {
        health->EndWithoutRequests(now);
        reflection->EndIdle(now);
      });
  return server;
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetServing(absl::string_view service, bool serving) {
  health_->Set(service, serving);
}

void RpcServer::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  acceptor_->Stop();
  health_->End();
  server_->Shutdown(absl::ToChronoTime(SystemNow() + grace));
  server_->Wait();
  server_ = nullptr;
}

}  // namespace baton
