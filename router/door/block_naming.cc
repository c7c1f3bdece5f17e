#include "router/door/block_naming.h"

#include "common/kv_cache/block_namer.h"

namespace baton {

std::shared_ptr<const std::vector<BlockName>> NamePromptBlocks(const ServingChanged& serving,
                                                               const std::string& secret,
                                                               const RopeConfig& rope,
                                                               const std::string& salt,
                                                               absl::Span<const TokenId> prompt) {
  if (serving.block_tokens <= 0) return nullptr;
  const int tokens = static_cast<int>(prompt.size());
  BlockNamer namer;
  PrefixChain chain(namer.Root({.secret = secret,
                                .model_fingerprint = serving.identity.fingerprint,
                                .numerics_id = serving.identity.numerics_id,
                                .layout_fingerprint = serving.layout_fingerprint,
                                .adapter = "",
                                .rope_reach = RopeReach(rope, tokens, tokens),
                                .salt = salt}),
                    serving.block_tokens);
  chain.Extend(prompt, &namer);
  return std::make_shared<const std::vector<BlockName>>(std::move(chain).names());
}

}  // namespace baton
