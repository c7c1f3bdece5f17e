#include "router/door/block_naming.h"

#include "common/kv_cache/block_namer.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr int kNamedTokens = 4;

ServingChanged Serving() {
  ServingChanged serving;
  serving.identity = {"model", "numerics"};
  serving.layout_fingerprint = "layout";
  serving.block_tokens = kNamedTokens;
  return serving;
}

TEST(BlockNamingTest, NamesAreThoseThatAWorkerGives) {
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  BlockNamer namer;
  PrefixChain chain(namer.Root({.secret = "secret",
                                .model_fingerprint = "model",
                                .numerics_id = "numerics",
                                .layout_fingerprint = "layout",
                                .adapter = "",
                                .rope_reach = RopeReach(RopeConfig(), 9, 9),
                                .salt = "salt"}),
                    kNamedTokens);
  chain.Extend(prompt, &namer);
  ASSERT_EQ(chain.names().size(), 2u);
  EXPECT_EQ(*NamePromptBlocks(Serving(), "secret", RopeConfig(), "salt", prompt), chain.names());
  EXPECT_NE(*NamePromptBlocks(Serving(), "secret", RopeConfig(), "", prompt), chain.names());
}

TEST(BlockNamingTest, WithoutALayoutThereAreNoNames) {
  ServingChanged serving = Serving();
  serving.block_tokens = 0;
  EXPECT_EQ(NamePromptBlocks(serving, "", RopeConfig(), "", {1, 2, 3, 4}), nullptr);
}

}  // namespace
}  // namespace baton
