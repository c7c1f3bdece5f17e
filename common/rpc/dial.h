#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

// Returns a channel to a router or worker, with our keepalive and message sizes. It connects on
// first use. After a loss it reconnects, with pauses of at most one second. Every call makes a new
// connection.
std::shared_ptr<grpc::Channel> Dial(const std::string& address);

// Returns the cluster's shared attach token, which all workers and routers know: `flag`, or else
// $BATON_ATTACH_TOKEN. "" means that there is no token. Returns InvalidArgument for a token that
// can't be sent (it must be visible ASCII without spaces), and for a variable that is set but
// empty. Such a variable comes from a Secret that lost its value, and must not let everyone attach.
absl::StatusOr<std::string> AttachToken(const std::string& flag);
// Adds the metadata "authorization: Bearer TOKEN" to a call that has not begun. `token` is the
// attach token, or a client's API key for a router; nothing is added if it is empty.
void AddToken(grpc::ClientContext* context, const std::string& token);
// Returns Unauthenticated unless the caller sent `token`, compared in constant time. Always OK if
// `token` is empty.
absl::Status CheckToken(const grpc::ServerContextBase& context, const std::string& token);

// Returns true if the caller sent an attach token, right or wrong.
bool HasToken(const grpc::ServerContextBase& context);

}  // namespace baton
