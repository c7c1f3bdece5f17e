#include "tests/goodput/traces/prompt_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
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

}  // namespace

absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("can't read the prompt file ", path, ": ", std::strerror(errno)));
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
