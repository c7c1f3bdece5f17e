#pragma once

#include <string>

#include <ucp/api/ucp.h>

namespace baton {

// Returns the way that the bytes of an endpoint's reads take, as Transport::Link names it. `mapped`
// is true if the peer's memory is mapped into our address space, so that reads over shared memory
// are plain copies.
std::string UcxLinkOf(ucp_ep_h endpoint, bool mapped);

}  // namespace baton
