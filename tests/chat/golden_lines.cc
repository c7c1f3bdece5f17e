#include "tests/chat/golden_lines.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/base/check.h"
#include "common/chat/chat_json.h"

namespace baton {
namespace {

std::filesystem::path TestdataFolder() {
  return std::filesystem::path(BATON_SOURCE_DIR) / "tests/chat/testdata";
}

}  // namespace

std::vector<GoldenLine> ReadGoldenLines() {
  std::vector<GoldenLine> lines;
  std::ifstream in(TestdataFolder() / "chat_goldens.jsonl");
  for (std::string text; std::getline(in, text);) {
    const auto json = ParseChatJson(text);
    BATON_CHECK(json.ok()) << json.status();
    GoldenLine line;
    line.line = *json;
    const ChatDict& dict = line.line.AsDict();
    line.template_name = dict.Find("template")->AsText().Utf8();
    line.variables = *dict.Find("variables");
    line.clock.now = absl::FromUnixSeconds(dict.Find("now")->AsInt());
    line.text = dict.Find("text");
    line.raised = dict.Find("raised");
    lines.push_back(std::move(line));
  }
  return lines;
}

std::map<std::string, std::unique_ptr<const ChatTemplate>> ReadGoldenTemplates() {
  std::map<std::string, std::unique_ptr<const ChatTemplate>> templates;
  for (const auto& file : std::filesystem::directory_iterator(TestdataFolder())) {
    if (file.path().extension() != ".jinja") continue;
    std::ifstream in(file.path(), std::ios::binary);
    const std::string source{std::istreambuf_iterator<char>(in), {}};
    auto parsed = ChatTemplate::Parse(source);
    BATON_CHECK(parsed.ok()) << file.path() << parsed.status();
    templates[file.path().filename()] = *std::move(parsed);
  }
  return templates;
}

ChatVariables VariablesOf(const ChatValue& variables) {
  ChatVariables list;
  for (const auto& [name, value] : variables.AsDict().entries()) {
    list.emplace_back(name.AsText().Utf8(), value);
  }
  return list;
}

}  // namespace baton
