#include "common/rpc/dial.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/limits.h"

namespace baton {
namespace {

constexpr char kAuthorization[] = "authorization";

}  // namespace

std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  LogGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Despite its name, this argument is also the time limit of one connection attempt.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectLimitMs);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Workers are reached directly. A proxy that the environment names is for the outside world.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

absl::StatusOr<std::string> AttachToken(const std::string& flag) {
  const char* const variable = flag.empty() ? std::getenv("BATON_ATTACH_TOKEN") : nullptr;
  const char* const name = variable == nullptr ? "--attach-token" : "BATON_ATTACH_TOKEN";
  const std::string token = variable == nullptr ? flag : variable;
  if (variable != nullptr && token.empty()) {
    return absl::InvalidArgumentError(
        "BATON_ATTACH_TOKEN is set but empty; unset it if no token is wanted");
  }
  const auto bad =
      std::find_if(token.begin(), token.end(), [](char c) { return c <= ' ' || c > '~'; });
  if (bad == token.end()) return token;
  // The message does not contain the token, because messages are logged.
  return absl::InvalidArgumentError(absl::StrCat(
      name, " takes visible ASCII characters without spaces; character ", bad - token.begin() + 1,
      " of ", token.size(), " has code ", static_cast<int>(static_cast<unsigned char>(*bad))));
}

void AddToken(grpc::ClientContext* context, const std::string& token) {
  if (!token.empty()) context->AddMetadata(kAuthorization, absl::StrCat("Bearer ", token));
}

bool HasToken(const grpc::ServerContextBase& context) {
  return context.client_metadata().contains(kAuthorization);
}

absl::Status CheckToken(const grpc::ServerContextBase& context, const std::string& token) {
  if (token.empty()) return absl::OkStatus();
  const std::string wanted = absl::StrCat("Bearer ", token);
  const auto found = context.client_metadata().find(kAuthorization);
  if (found == context.client_metadata().end()) {
    return absl::UnauthenticatedError(
        "no attach token was sent, and this program has one: give all routers and workers the same "
        "--attach-token");
  }
  const grpc::string_ref sent = found->second;
  unsigned char difference = sent.size() != wanted.size();
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference |= static_cast<unsigned char>(wanted[i] ^ (i < sent.size() ? sent.data()[i] : 0));
  }
  return difference == 0 ? absl::OkStatus()
                         : absl::UnauthenticatedError(
                               "the attach token differs from this program's: give all routers and "
                               "workers the same --attach-token");
}

}  // namespace baton
