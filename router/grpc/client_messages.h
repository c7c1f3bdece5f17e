#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "baton/v1/inference.pb.h"
#include "router/core/client_event.h"
#include "router/door/client_request.h"

namespace baton {

// Returns InvalidArgument for a mode that does not exist.
absl::Status CheckMode(v1::ServingMode mode);
// Converts a client's message, which it may move from. Checks nothing.
ClientRequest RequestFromProto(v1::GenerateRequest&& request);
// Converts an event for a client.
v1::GenerateEvent ToProto(ClientEvent event);

// Returns the address in gRPC's name of a peer, without the port.
std::string AddressOfPeer(absl::string_view peer);

}  // namespace baton
