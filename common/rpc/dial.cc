#include "common/rpc/dial.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/limits.h"

namespace baton {
namespace {

constexpr char kAuthorization[] = "authorization";

}  // namespace

std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Also how long one try at connecting may take: a busy machine needs more than a moment.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Workers are dialled directly, whatever proxy the environment names for the outside world.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void AddToken(grpc::ClientContext* context, const std::string& token) {
  if (!token.empty()) context->AddMetadata(kAuthorization, absl::StrCat("Bearer ", token));
}

absl::Status CheckToken(const grpc::ServerContextBase& context, const std::string& token) {
  if (token.empty()) return absl::OkStatus();
  const std::string wanted = absl::StrCat("Bearer ", token);
  const auto found = context.client_metadata().find(kAuthorization);
  if (found == context.client_metadata().end()) {
    return absl::UnauthenticatedError("no attach token was sent, and this cluster has one");
  }
  const grpc::string_ref sent = found->second;
  unsigned char difference = sent.size() != wanted.size();
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference |= static_cast<unsigned char>(wanted[i] ^ (i < sent.size() ? sent.data()[i] : 0));
  }
  return difference == 0 ? absl::OkStatus()
                         : absl::UnauthenticatedError("the attach token is not this cluster's");
}

}  // namespace baton
