#include "kv_transfer/transport/ucx_devices.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <uct/api/uct.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"

namespace baton {
namespace {

// Returns the names of UCX's components that found a resource on this machine.
std::vector<std::string> Components() {
  std::vector<std::string> names;
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (uct_query_components(&components, &count) != UCS_OK) return names;
  for (unsigned i = 0; i < count; ++i) {
    uct_component_attr_t about{};
    about.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if (uct_component_query(components[i], &about) != UCS_OK || about.md_resource_count == 0) {
      continue;
    }
    names.emplace_back(about.name);
  }
  uct_release_component_list(components);
  return names;
}

}  // namespace

std::vector<std::string> UcxDeviceTransports() {
  const std::vector<std::string> components = Components();
  const auto has = [&components](absl::string_view name) {
    return std::find(components.begin(), components.end(), name) != components.end();
  };
  if (!has("cuda_cpy")) return {};
  std::vector<std::string> transports = {"cuda_copy"};
  if (has("cuda_ipc")) transports.push_back("cuda_ipc");
  if (has("gdr_copy")) transports.push_back("gdr_copy");
  if (has("ib")) transports.push_back("rc");
  return transports;
}

// Returns the names of a context's transports. Parses lines like `#      resource 2  :  md 1  dev 1
// flags -- tcp/lo`, because UCX 1.13 has no call that lists them.
std::vector<std::string> UcxTransportsOf(ucp_context_h context) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  BATON_CHECK(stream != nullptr);
  ucp_context_print_info(context, stream);
  std::fclose(stream);
  std::vector<std::string> transports;
  for (const absl::string_view line : absl::StrSplit(absl::string_view(text, bytes), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 3 || words[1] != "resource") continue;
    const std::string name(words.back().substr(0, words.back().find('/')));
    if (std::find(transports.begin(), transports.end(), name) == transports.end()) {
      transports.push_back(name);
    }
  }
  std::free(text);
  return transports;
}

uint64_t UcxMemoryTypesOf(ucp_context_h context) {
  ucp_context_attr_t about{};
  about.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return ucp_context_query(context, &about) == UCS_OK ? about.memory_types : 0;
}

absl::Status UcxReadsDevices(uint64_t memory_types, absl::Span<const std::string> transports) {
  const std::string has = absl::StrCat("it has ", absl::StrJoin(transports, ", "));
  if ((memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("UCX can't use the memory of CUDA devices here: it was built without CUDA, "
                     "found no device, or does not use cuda_copy (",
                     has, ")"));
  }
  const bool reads = std::any_of(transports.begin(), transports.end(), [](const auto& name) {
    return absl::StartsWith(name, "rc") || absl::StartsWith(name, "dc");
  });
  if (reads) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("none of UCX's transports reads device memory without the owner's processor, as "
                   "rc and dc do over RDMA (",
                   has, ")"));
}

}  // namespace baton
