#include "kv_transfer/transport/ucx_link.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"

namespace baton {
namespace {

absl::string_view LinkOfUcxTransport(absl::string_view name) {
  for (const absl::string_view shm : {"sysv", "posix", "cma", "knem", "xpmem", "self"}) {
    if (name == shm) return "shm";
  }
  if (absl::StartsWith(name, "cuda_ipc")) return "nvlink";
  for (const absl::string_view rdma : {"rc", "dc", "ud"}) {
    if (absl::StartsWith(name, rdma)) return "rdma";
  }
  return name;
}

// Returns the name of an endpoint's link, which is the transport of the lane that its reads take.
// UCX 1.13 has no call that tells the link, so this parses the output of ucp_ep_print_info:
//   lane[0]: 0:sysv/memory.0 md[0] -> md[0]/sysv/sysdev[255] am ...   lane 0 uses sysv, and carries
//                                                                     active messages (am)
//   get[0]: ...                                                       lane 0 can read memory
// UCX emulates reads on the lane of active messages if there is no `get` line, or if the lane that
// can read is shared memory and the peer's memory is not mapped here (`mapped` is false).
std::string LinkFromInfo(absl::string_view info, bool mapped) {
  std::map<std::string, std::string> lanes;
  std::string messages, reads;
  for (const absl::string_view line : absl::StrSplit(info, '\n')) {
    const size_t open = line.find('['), close = line.find("]:");
    if (open == line.npos || close == line.npos || close < open) continue;
    const std::string index(line.substr(open + 1, close - open - 1));
    if (absl::EndsWith(line.substr(0, open), " lane")) {
      const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      for (size_t i = 0; i + 1 < words.size(); ++i) {
        if (words[i] != "->") continue;
        const std::vector<std::string> parts = absl::StrSplit(words[i + 1], '/');
        if (parts.size() > 1) lanes[index] = parts[1];
      }
      if (absl::c_linear_search(words, "am")) messages = index;
    } else if (absl::EndsWith(line.substr(0, open), " get") && reads.empty()) {
      reads = index;
    }
  }
  const bool copies = LinkOfUcxTransport(lanes[reads]) == "shm";
  const std::string& lane = reads.empty() || (copies && !mapped) ? messages : reads;
  return std::string(LinkOfUcxTransport(lanes[lane]));
}

}  // namespace

std::string UcxLinkOf(ucp_ep_h endpoint, bool mapped) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  BATON_CHECK(stream != nullptr);
  ucp_ep_print_info(endpoint, stream);
  std::fclose(stream);
  std::string link = LinkFromInfo({text, bytes}, mapped);
  std::free(text);
  return link;
}

}  // namespace baton
