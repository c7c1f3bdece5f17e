#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

// A channel to a router or worker, with keepalive and our message sizes. Connects on first use, and
// again after a loss with pauses of at most one second. Every call makes a connection of its own.
std::shared_ptr<grpc::Channel> Dial(const std::string& address);

// The shared attach token: workers and routers of one cluster know it. An empty one is none at all.
// The one of the flag, or of $BATON_ATTACH_TOKEN. InvalidArgument for what can't be sent (visible
// ASCII without spaces can) and for a variable that is set but empty: that is a Secret that lost
// its value, and no reason to let everyone attach.
absl::StatusOr<std::string> AttachToken(const std::string& flag);
void AddToken(grpc::ClientContext* context, const std::string& token);
// Unauthenticated unless the caller sent `token`. Compares in constant time. OK when `token` is
// empty.
absl::Status CheckToken(const grpc::ServerContextBase& context, const std::string& token);

// True if the caller sent an attach token, right or wrong.
bool HasToken(const grpc::ServerContextBase& context);

}  // namespace baton
