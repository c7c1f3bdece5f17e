#include "common/kv_cache/block_namer.h"

#include <functional>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

PrefixScope SomeScope() {
  return {.secret = "s",
          .model_fingerprint = "m",
          .numerics_id = "n",
          .layout_fingerprint = "l",
          .adapter = "a",
          .rope_reach = 7,
          .salt = "t"};
}

TEST(BlockNamerTest, NamesDoNotChangeBetweenVersions) {
  // Computed with Python's hashlib from the description in block_namer.h. Workers and routers of
  // one protocol version must agree on names.
  BlockNamer namer;
  const BlockName root = namer.Root(SomeScope());
  EXPECT_EQ(root.high, 0x96D9817128768736u);
  EXPECT_EQ(root.low, 0xB1498836DA53DD79u);
  const std::vector<TokenId> tokens = {1, 258, 100000};
  const BlockName block = namer.Next(root, tokens);
  EXPECT_EQ(block.high, 0x159848EE5FF8DD37u);
  EXPECT_EQ(block.low, 0xC2AA71C5AF17F30Cu);
}

TEST(BlockNamerTest, EveryFieldOfTheScopeChangesTheRoot) {
  BlockNamer namer;
  std::set<BlockName> roots = {namer.Root(SomeScope())};
  const std::vector<std::function<void(PrefixScope*)>> changes = {
      [](PrefixScope* s) { s->secret = "u"; },
      [](PrefixScope* s) { s->model_fingerprint = "u"; },
      [](PrefixScope* s) { s->numerics_id = "u"; },
      [](PrefixScope* s) { s->layout_fingerprint = "u"; },
      [](PrefixScope* s) { s->adapter = "u"; },
      [](PrefixScope* s) { s->rope_reach = 8; },
      [](PrefixScope* s) { s->salt = "u"; },
      [](PrefixScope* s) { s->salt.clear(); },
      // The same bytes in other fields.
      [](PrefixScope* s) { std::swap(s->adapter, s->salt); },
      [](PrefixScope* s) { s->adapter += s->salt, s->salt.clear(); },
  };
  for (const auto& change : changes) {
    PrefixScope scope = SomeScope();
    change(&scope);
    EXPECT_TRUE(roots.insert(namer.Root(scope)).second) << roots.size();
  }
}

TEST(BlockNamerTest, ParentAndEveryTokenChangeTheName) {
  BlockNamer namer;
  const BlockName root = namer.Root(SomeScope());
  std::set<BlockName> names = {root};
  for (const std::vector<TokenId>& tokens : std::vector<std::vector<TokenId>>{
           {1, 2}, {2, 1}, {1, 3}, {1}, {1, 2, 0}, {}, {1 << 30, 2}}) {
    EXPECT_TRUE(names.insert(namer.Next(root, tokens)).second) << names.size();
    EXPECT_TRUE(names.insert(namer.Next({root.high, root.low + 1}, tokens)).second);
    EXPECT_TRUE(names.insert(namer.Next({root.high + 1, root.low}, tokens)).second);
  }
}

TEST(PrefixChainTest, NamesFullBlocksOnlyAndGoesOnWhereItEnded) {
  BlockNamer namer;
  const BlockName root = namer.Root(SomeScope());
  const std::vector<TokenId> tokens = {5, 6, 7, 8, 9, 10, 11};
  PrefixChain at_once(root, 3), in_steps(root, 3);
  at_once.Extend(tokens, &namer);
  ASSERT_EQ(at_once.names().size(), 2u);
  for (size_t n = 0; n <= tokens.size(); ++n) {
    in_steps.Extend(absl::MakeConstSpan(tokens).first(n), &namer);
    EXPECT_EQ(in_steps.names().size(), n / 3);
  }
  EXPECT_EQ(in_steps.names(), at_once.names());
  EXPECT_EQ(at_once.names()[1],
            namer.Next(at_once.names()[0], absl::MakeConstSpan(tokens).subspan(3, 3)));
  EXPECT_EQ(at_once.ParentOf(0), root);
  EXPECT_EQ(at_once.ParentOf(1), at_once.names()[0]);
}

TEST(PrefixChainTest, EmptyChainStaysEmpty) {
  BlockNamer namer;
  PrefixChain chain;
  chain.Extend(std::vector<TokenId>(64, 1), &namer);
  EXPECT_TRUE(chain.empty());
  EXPECT_TRUE(chain.names().empty());
}

}  // namespace
}  // namespace baton
