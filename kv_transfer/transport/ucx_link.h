#pragma once

#include <string>

#include <ucp/api/ucp.h>

namespace baton {

// Which way the bytes of an endpoint's reads take, as Transport::Link names it. `mapped`: the
// peer's memory is in our address space, so they are copies whatever lanes there are.
std::string UcxLinkOf(ucp_ep_h endpoint, bool mapped);

}  // namespace baton
