#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mutations/mutations.h"

namespace baton {
namespace {

// A process with this variable runs the tests of the prefix cache with that mutation switched on.
constexpr char kNumber[] = "BATON_PREFIX_MUTATION";

// Switched on before the first test begins.
const std::unique_ptr<mutations::ScopedMutation> switched_on =
    std::getenv(kNumber) == nullptr || std::atoi(std::getenv(kNumber)) == 0
        ? nullptr
        : std::make_unique<mutations::ScopedMutation>(std::atoi(std::getenv(kNumber)));

// Runs the tests of the prefix cache in another process, because a fault may abort it. Returns true
// if they pass. Number 0 means without a mutation.
bool TestsPass(int number) {
  const std::string run = absl::StrCat(kNumber, "=", number, " BATON_PREFIX_HISTORIES=80 '",
                                       testing::internal::GetArgvs().front(),
                                       "' --gtest_fail_fast --gtest_brief=1"
                                       " --gtest_filter='*Prefix*:BlockNam*:NameLog*:"
                                       "CacheChangesTest*:RecentPrompts*-PrefixMutationsTest.*:*"
                                       "DeathTest*' >/dev/null 2>&1");
  const int status = std::system(run.c_str());
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(PrefixMutationsTest, TheTestsPassWithoutAFault) { EXPECT_TRUE(TestsPass(0)); }

TEST(PrefixMutationsTest, EveryFaultIsFound) {
  int found = 0;
  for (const mutations::Mutation& mutation : mutations::AllMutations()) {
    if (TestsPass(mutation.number)) {
      ADD_FAILURE() << "no test finds: " << mutation;
    } else {
      ++found;
    }
  }
  std::cout << found << " faults were found\n";
}

}  // namespace
}  // namespace baton
