#include "common/fetch/gguf_choice.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string>& Names() {
  static const auto* names = new std::vector<std::string>{"README.md",
                                                          "config.json",
                                                          "model-Q4_K_M.gguf",
                                                          "model-IQ4_K_M.gguf",
                                                          "model.q8_0.gguf",
                                                          "BF16/model-BF16-00002-of-00002.gguf",
                                                          "BF16/model-BF16-00001-of-00002.gguf",
                                                          "F16/model.gguf",
                                                          "model-F32-00001-of-00003.gguf",
                                                          "model-F32-00003-of-00003.gguf"};
  return *names;
}

std::vector<std::string> Chosen(absl::string_view choice) {
  const auto chosen = ChooseGguf(Names(), choice);
  EXPECT_TRUE(chosen.ok()) << choice << ": " << chosen.status();
  return chosen.value_or(std::vector<std::string>());
}

TEST(GgufChoiceTest, AFileOrTheEndOfItsName) {
  EXPECT_THAT(Chosen("model-IQ4_K_M.gguf"), ElementsAre("model-IQ4_K_M.gguf"));
  EXPECT_THAT(Chosen("Q4_K_M"), ElementsAre("model-Q4_K_M.gguf"));
  EXPECT_THAT(Chosen("iq4_k_m"), ElementsAre("model-IQ4_K_M.gguf"));
  EXPECT_THAT(Chosen("Q8_0"), ElementsAre("model.q8_0.gguf"));
  EXPECT_THAT(*ChooseGguf({"a.json", "a.gguf"}, ""), ElementsAre("a.gguf"));
  EXPECT_THAT(*ChooseGguf({"Q8_0.gguf", "x/Q4_0.gguf"}, "Q8_0"), ElementsAre("Q8_0.gguf"));
}

TEST(GgufChoiceTest, AllPartsOfASplitFileTheFirstOneFirst) {
  for (const char* choice :
       {"BF16", "BF16/model-BF16-00001-of-00002.gguf", "BF16/model-BF16-00002-of-00002.gguf"}) {
    EXPECT_THAT(Chosen(choice), ElementsAre("BF16/model-BF16-00001-of-00002.gguf",
                                            "BF16/model-BF16-00002-of-00002.gguf"));
  }
  const absl::Status lacks = ChooseGguf(Names(), "F32").status();
  EXPECT_EQ(lacks.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(lacks.message(),
              HasSubstr("has 2 of the 3 parts of 'model-F32-00001-of-00003.gguf'"));
}

TEST(GgufChoiceTest, PartsAreThoseFromOneToTheirCount) {
  std::vector<std::string> names = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                    "m-00007-of-00003.gguf"};
  EXPECT_THAT(ChooseGguf(names, "m").status().message(),
              HasSubstr("has 2 of the 3 parts of 'm-00001-of-00003.gguf'"));
  names.push_back("m-00003-of-00003.gguf");
  EXPECT_THAT(*ChooseGguf(names, "m"), ElementsAre(names[0], names[1], names[3]));
  EXPECT_THAT(ChooseGguf({"m-00000-of-00000.gguf"}, "").status().message(),
              HasSubstr("has 0 of the 0 parts of 'm-00001-of-00000.gguf'"));
}

TEST(GgufChoiceTest, RefusalsListTheNames) {
  const absl::Status several = ChooseGguf(Names(), "").status();
  EXPECT_EQ(several.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(several.message(),
            "has 6 GGUF files to choose from; give the name of one behind the model's: "
            "BF16/model-BF16-00001-of-00002.gguf, F16/model.gguf, model-F32-00001-of-00003.gguf, "
            "model-IQ4_K_M.gguf, model-Q4_K_M.gguf, model.q8_0.gguf");
  EXPECT_THAT(ChooseGguf({"a-F16.gguf", "b-F16.gguf", "c-F32.gguf"}, "f16").status().message(),
              HasSubstr("has 2 GGUF files to choose from; give the name of one behind the model's: "
                        "a-F16.gguf, b-F16.gguf"));
  EXPECT_EQ(ChooseGguf({"config.json"}, "F16").status(), absl::NotFoundError("has no GGUF files"));
}

TEST(GgufChoiceTest, NamesLikeTheWantedOneComeFirst) {
  for (const auto& [choice, first] : std::vector<std::pair<std::string, std::string>>{
           {"Q8", "model.q8_0.gguf, "},
           {"model-q4_k_m.gguf", "model-Q4_K_M.gguf, "},  // the case of a file's name counts
           {"iq4_xs", "model-IQ4_K_M.gguf, "},
           {"K_M", "model-IQ4_K_M.gguf, model-Q4_K_M.gguf, "},
           {"model.gguf", "F16/model.gguf, "}}) {
    const absl::Status none = ChooseGguf(Names(), choice).status();
    EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(none.message(), HasSubstr(absl::StrCat("has no GGUF file '", choice,
                                                       "'; give one that it has: ", first)));
  }
  std::vector<std::string> many;
  for (int i = 100; i < 150; ++i) many.push_back(absl::StrCat("m-", i, ".gguf"));
  const absl::Status none = ChooseGguf(many, "m-149x").status();
  EXPECT_THAT(none.message(), HasSubstr("it has: m-149.gguf, m-140.gguf, m-141.gguf, "));
  EXPECT_TRUE(absl::EndsWith(none.message(), "m-109.gguf and 30 more")) << none;
}

}  // namespace
}  // namespace baton
