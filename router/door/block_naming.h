#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/block_name.h"
#include "common/base/types.h"
#include "common/model/source/rope_config.h"
#include "router/core/core_events.h"

namespace baton {

// Returns the names that workers give to the full blocks of this prompt (common/kv_cache), if they
// have the identity and layout of `serving`. Null if `serving` has no layout. `secret` is the
// cluster's attach token. Any thread.
std::shared_ptr<const std::vector<BlockName>> NamePromptBlocks(const ServingChanged& serving,
                                                               const std::string& secret,
                                                               const RopeConfig& rope,
                                                               const std::string& salt,
                                                               absl::Span<const TokenId> prompt);

}  // namespace baton
