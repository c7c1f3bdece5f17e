#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/testing/core_harness.h"

namespace baton {

// Returns a prompt with the tokens 1, 2, and so on up to `size`.
inline std::vector<TokenId> Prompt(int size) {
  std::vector<TokenId> prompt(static_cast<size_t>(size));
  std::iota(prompt.begin(), prompt.end(), 1);
  return prompt;
}

// Base class for tests of the core with one harness. Has functions that check a complete answer.
class RouterCoreTest : public ::testing::Test {
 protected:
  ClientSide& client(RequestKey key) { return h.clients.at(key); }
  void ExpectAnswer(RequestKey key, int prompt, int tokens) {
    ASSERT_TRUE(client(key).status) << "not finished";
    EXPECT_TRUE(client(key).status->ok()) << *client(key).status;
    EXPECT_EQ(client(key).accepted, 1);
    EXPECT_EQ(client(key).tokens, Continuation(Prompt(prompt), tokens));
    for (size_t i = 0; i < client(key).positions.size(); ++i) {
      ASSERT_EQ(client(key).positions[i], prompt + i);
    }
    ASSERT_TRUE(client(key).finished);
    ASSERT_TRUE(client(key).summary);
    EXPECT_EQ(client(key).summary->usage.completion_tokens, static_cast<uint32_t>(tokens));
    EXPECT_TRUE(AtRest());
  }
  void ExpectFailed(RequestKey key, absl::StatusCode code, const std::string& words) {
    ASSERT_TRUE(client(key).status) << "not finished";
    EXPECT_EQ(client(key).status->code(), code) << *client(key).status;
    EXPECT_THAT(std::string(client(key).status->message()), ::testing::HasSubstr(words));
    EXPECT_FALSE(client(key).finished);
  }
  bool AtRest() { return h.core.requests() == 0 && h.core.legs() == 0 && h.core.queued() == 0; }

  CoreHarness h;
};

}  // namespace baton
