#include "tests/goodput/traces/prompt_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/json_value.h"
#include "common/base/status_macros.h"
#include "tests/goodput/results/object_reader.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;

absl::StatusOr<FilePrompt> ParseLine(absl::string_view line, bool is_json) {
  FilePrompt prompt;
  if (is_json) {
    const json object = json::parse(line.begin(), line.end(), nullptr, false);
    if (object.is_discarded() || !object.is_object())
      return absl::InvalidArgumentError("the line is not a JSON object");
    absl::Status status;
    ObjectReader reader(&object, "", &status);
    reader.RefuseOthers({"text", "output_tokens"});
    prompt.text = reader.String("text");
    if (reader.Has("output_tokens")) {
      prompt.output_tokens = reader.Uint("output_tokens");
      if (prompt.output_tokens == 0) reader.Refuse("output_tokens", "is 0; leave it out");
    }
    RETURN_IF_ERROR(status);
  } else {
    prompt.text = std::string(line);
    // The dump replaces bytes that are not UTF-8 by U+FFFD, so a text with such bytes differs from
    // its dump.
    const std::string dumped =
        json(prompt.text).dump(-1, ' ', true, json::error_handler_t::replace);
    if (json::parse(dumped) != json(prompt.text))
      return absl::InvalidArgumentError("the text is not UTF-8");
  }
  if (prompt.text.empty()) return absl::InvalidArgumentError("the text is empty");
  return prompt;
}

constexpr size_t kBytesPerToken = 4;  // For the length of an answer that was not tokenised.

// Returns the prompt of an element of a ShareGPT file, without a text if the element is skipped.
absl::StatusOr<FilePrompt> ParseConversation(const JsonValue& element) {
  if (!element.IsObject()) {
    return absl::InvalidArgumentError(absl::StrCat(element.Describe(), " is not an object"));
  }
  const std::optional<JsonValue> turns = element.Member("conversations");
  if (!turns || !turns->IsArray())
    return absl::InvalidArgumentError("it has no list `conversations`");
  FilePrompt prompt;
  bool answered = false;
  int index = 0;
  RETURN_IF_ERROR(turns->ForEachElement([&](JsonValue turn) {
    const std::optional<JsonValue> from = turn.Member("from"), value = turn.Member("value");
    if (!from || !from->String() || !value || !value->String()) {
      return absl::InvalidArgumentError(
          absl::StrCat("turn ", index, " has no texts `from` and `value`"));
    }
    ++index;
    if (prompt.text.empty()) {
      if (*from->String() == "human") prompt.text = std::string(*value->String());
    } else if (!answered) {
      answered = true;
      if (*from->String() == "gpt") prompt.answer = std::string(*value->String());
    }
    return absl::OkStatus();
  }));
  if (prompt.answer.empty()) return FilePrompt();
  prompt.output_tokens =
      static_cast<uint32_t>(std::max<size_t>(1, prompt.answer.size() / kBytesPerToken));
  return prompt;
}

// Returns true if the file begins as a list of objects, or as an empty list. A text may begin with
// [ too. Leaves the file at its beginning.
bool BeginsList(std::ifstream* file) {
  char first = 0, second = 0;
  const bool begins =
      *file >> first && first == '[' && *file >> second && (second == '{' || second == ']');
  file->clear();
  file->seekg(0);
  return begins;
}

absl::StatusOr<std::vector<FilePrompt>> ReadConversations(const std::string& path,
                                                          std::ifstream* file) {
  std::ostringstream bytes;
  bytes << file->rdbuf();
  const auto text = JsonText::Parse(std::move(bytes).str());
  if (!text.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": it begins with [, but is no JSON list: ", text.status().message()));
  }
  std::vector<FilePrompt> prompts;
  int index = 0;
  RETURN_IF_ERROR((*text)->root().ForEachElement([&](JsonValue element) {
    absl::StatusOr<FilePrompt> prompt = ParseConversation(element);
    if (!prompt.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": conversation ", index, ": ", prompt.status().message()));
    }
    ++index;
    if (!prompt->text.empty()) prompts.push_back(*std::move(prompt));
    return absl::OkStatus();
  }));
  if (!prompts.empty()) return prompts;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": none of its ", index,
                   " conversations has a turn of \"human\" that a turn of \"gpt\" follows"));
}

}  // namespace

absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("can't read the prompt file ", path, ": ", std::strerror(errno)));
  if (BeginsList(&file)) return ReadConversations(path, &file);
  const bool is_json = file.peek() == '{';
  std::vector<FilePrompt> prompts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StatusOr<FilePrompt> prompt = ParseLine(line, is_json);
    if (!prompt.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", prompt.status().message()));
    }
    prompts.push_back(*std::move(prompt));
  }
  if (prompts.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no prompts"));
  return prompts;
}

}  // namespace baton
