#include "router/door/api_keys.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/scratch_folder.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kVariable[] = "BATON_API_KEY_OF_TEST";

class ApiKeysTest : public ::testing::Test {
 protected:
  ~ApiKeysTest() override { unsetenv(kVariable); }
  std::string Write(const std::string& text) {
    const std::string path = folder_.path() + "/keys";
    // A new file in place of the old one, as Kubernetes replaces a Secret.
    std::ofstream(path + ".new") << text;
    std::rename((path + ".new").c_str(), path.c_str());
    return path;
  }
  static std::string FaultOf(const std::string& file) {
    return std::string(ApiKeys::Load(file, kVariable).status().message());
  }

  ScratchFolder folder_;
};

TEST_F(ApiKeysTest, WithoutKeysEverybodyEnters) {
  const auto keys = *ApiKeys::Load("", kVariable);
  EXPECT_FALSE(keys->required());
  EXPECT_TRUE(keys->Check("").ok());
  EXPECT_TRUE(keys->Check("Bearer anything").ok());
}

TEST_F(ApiKeysTest, OneOfTheKeysIsNeeded) {
  setenv(kVariable, "sk-variable", 1);
  const auto keys = *ApiKeys::Load(Write("# for a\nsk-a\r\n\n  sk-b  \n"), kVariable);
  EXPECT_TRUE(keys->required());
  for (const std::string good :
       {"Bearer sk-a", "bearer sk-b", "BEARER  sk-variable", "Bearer sk-a "}) {
    EXPECT_TRUE(keys->Check(good).ok()) << good;
  }
  for (const std::string bad : {"", "sk-a", "Basic sk-a", "Bearer", "Bearer ", "Bearer sk-",
                                "Bearer sk-aa", "Bearer # for a", "Bearer sk-asksk-a"}) {
    const absl::Status status = keys->Check(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << bad;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("sk-")));
  }
}

TEST_F(ApiKeysTest, AChangedFileIsReadAndABadOneIsNot) {
  const auto keys = *ApiKeys::Load(Write("sk-old\n"), kVariable);
  keys->ReadIfChanged();
  EXPECT_TRUE(keys->Check("Bearer sk-old").ok());
  Write("sk-newer\n");
  keys->ReadIfChanged();
  EXPECT_TRUE(keys->Check("Bearer sk-newer").ok());
  EXPECT_FALSE(keys->Check("Bearer sk-old").ok());
  for (const std::string bad : {"", "two words\n"}) {
    Write(bad);
    keys->ReadIfChanged();
    EXPECT_TRUE(keys->Check("Bearer sk-newer").ok());
    EXPECT_TRUE(keys->required());
  }
}

TEST_F(ApiKeysTest, ABadFileOrVariableIsNamedWithoutTheKey) {
  EXPECT_THAT(FaultOf(folder_.path() + "/none"), HasSubstr("/none can't be read"));
  EXPECT_THAT(FaultOf(Write("# nothing\n")), HasSubstr("/keys has no key"));
  const std::string fault = FaultOf(Write("sk-a\nsecret word\n"));
  EXPECT_THAT(fault, HasSubstr("line 2 of "));
  EXPECT_THAT(fault, HasSubstr("the byte 32"));
  EXPECT_THAT(fault, Not(HasSubstr("secret")));
  EXPECT_THAT(FaultOf(Write(std::string(513, 'k'))), HasSubstr("a key of 513 bytes"));
  setenv(kVariable, "", 1);
  EXPECT_THAT(FaultOf(""), HasSubstr("$BATON_API_KEY_OF_TEST has a key of 0 bytes"));
}

}  // namespace
}  // namespace baton
