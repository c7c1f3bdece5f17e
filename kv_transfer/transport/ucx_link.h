#pragma once

#include <string>

#include <ucp/api/ucp.h>

namespace baton {

// Returns the kind of link over which an endpoint reads, under one of the names of Transport::Link.
// `mapped` is true if the peer's memory is mapped into our address space, so that reads over shared
// memory are plain copies.
std::string UcxLinkOf(ucp_ep_h endpoint, bool mapped);

}  // namespace baton
