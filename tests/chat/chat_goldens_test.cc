#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/chat/golden_lines.h"

namespace baton {
namespace {

TEST(ChatGoldensTest, TextsAndErrorsAreThoseOfTransformers) {
  const auto templates = ReadGoldenTemplates();
  std::set<std::string> rendered_templates;
  for (const GoldenLine& line : ReadGoldenLines()) {
    SCOPED_TRACE(line.template_name);
    const auto rendered = templates.at(line.template_name)
                              ->Render(VariablesOf(line.variables), RenderLimits{}, line.clock);
    if (line.text != nullptr) {
      ASSERT_TRUE(rendered.ok()) << rendered.status();
      EXPECT_EQ(rendered->text, line.text->AsText().Utf8());
      rendered_templates.insert(line.template_name);
    } else if (line.raised != nullptr) {
      EXPECT_EQ(rendered.status(), absl::InvalidArgumentError(line.raised->AsText().Utf8()));
    } else {
      EXPECT_EQ(rendered.status().code(), absl::StatusCode::kFailedPrecondition)
          << rendered.status();
      EXPECT_THAT(std::string(rendered.status().message()), testing::StartsWith("line "));
    }
  }
  EXPECT_EQ(rendered_templates.size(), templates.size());
  EXPECT_GE(templates.size(), 10u);
}

// The templates together run everything that the interpreter has, so no part of it is unchecked.
TEST(ChatGoldensTest, TheTemplatesUseEveryConstruct) {
  const auto templates = ReadGoldenTemplates();
  ConstructCounts counts;
  for (const GoldenLine& line : ReadGoldenLines()) {
    (void)templates.at(line.template_name)
        ->Render(VariablesOf(line.variables), RenderLimits{}, line.clock, &counts);
  }
  std::vector<std::string> unused;
  for (const std::string& construct : AllConstructs()) {
    if (counts.count(construct) == 0) unused.push_back(construct);
  }
  EXPECT_THAT(unused, testing::IsEmpty());
}

TEST(ChatGoldensTest, ThreadsShareTemplates) {
  const auto templates = ReadGoldenTemplates();
  const std::vector<GoldenLine> lines = ReadGoldenLines();
  const auto render_all = [&] {
    std::string texts;
    for (size_t i = 0; i < lines.size(); i += 7) {
      const auto rendered = templates.at(lines[i].template_name)
                                ->Render(VariablesOf(lines[i].variables), {}, lines[i].clock);
      if (rendered.ok()) texts += rendered->text;
    }
    return texts;
  };
  const std::string expected = render_all();
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts) threads.emplace_back([&] { text = render_all(); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, expected);
}

}  // namespace
}  // namespace baton
