#include "common/up/process_log.h"

#include <cctype>
#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

constexpr size_t kLongestLine = 1 << 16;  // longer lines are cut

// Returns the value of a field in a JSON line from our log (base/log.h), or "" if there is no such
// field. A field's value can't be mistaken for a field name, because its quotes are escaped. (A
// full JSON parser would double the size of the program.)
std::string Field(absl::string_view line, absl::string_view name) {
  const std::string begin = absl::StrCat("\"", name, "\":\"");
  size_t at = line.find(begin);
  if (at == line.npos) return "";
  std::string value;
  for (at += begin.size(); at < line.size() && line[at] != '"'; ++at) {
    if (line[at] != '\\') {
      value += line[at];
    } else if (++at < line.size() && line[at] == 'u') {
      value += ' ';  // \uXXXX stands for a character that can't be shown
      at += 4;
    } else if (at < line.size()) {
      value += line[at];
    }
  }
  return value;
}

// Returns the value of a field in a text line of our log: NAME=VALUE, or NAME="VALUE" with escapes.
std::string TextField(absl::string_view line, absl::string_view name) {
  const std::string begin = absl::StrCat(" ", name, "=");
  size_t at = line.find(begin);
  if (at == line.npos) return "";
  at += begin.size();
  const bool quoted = at < line.size() && line[at] == '"';
  std::string value;
  for (at += quoted; at < line.size() && line[at] != (quoted ? '"' : ' '); ++at) {
    if (line[at] == '\\' && at + 1 < line.size()) ++at;
    value += line[at];
  }
  return value;
}

// Describes an event in a few words: its progress, else its reason, else its name.
std::string InFewWords(absl::string_view event, absl::string_view what, absl::string_view progress,
                       const std::string& why) {
  if (!progress.empty()) {
    return absl::StrCat(what == "kv_pool" ? "taking KV memory" : absl::StrCat("loading ", what),
                        ", ", progress);
  }
  if (event == "loading_model" || event == "memory_plan") return "loading the model";
  return why.empty() ? absl::StrReplaceAll(event, {{"_", " "}}) : why;
}

// Removes time, level and program from the start of a text log line, such as
// "2026-11-23T06:13:02.123456Z I baton-decode loading_model folder=/x". Other lines stay as they
// are.
absl::string_view WithoutPrefix(absl::string_view line) {
  const size_t time = line.find(' ');
  if (time == line.npos || time < 20 || line[time - 1] != 'Z' || !std::isdigit(line[0]) ||
      line.size() < time + 4 || line[time + 2] != ' ') {
    return line;
  }
  const size_t program = line.find(' ', time + 3);
  return program == line.npos ? line : line.substr(program + 1);
}

}  // namespace

void ProcessLog::BeginRun() {
  std::error_code error;
  const auto size = std::filesystem::file_size(path_, error);
  offset_ = error ? 0 : size;
  partial_.clear();
  address_.reset();
  http_address_.reset();
  last_line_.clear();
  progress_.clear();
  last_warning_.clear();
  refusal_.clear();
}

void ProcessLog::ReadNew() {
  std::ifstream file(path_, std::ios::binary);
  if (!file) return;
  file.seekg(static_cast<std::streamoff>(offset_));
  char buffer[8192];
  while (file.read(buffer, sizeof buffer), file.gcount() > 0) {
    offset_ += static_cast<uint64_t>(file.gcount());
    partial_.append(buffer, static_cast<size_t>(file.gcount()));
    size_t begin = 0;
    for (size_t end; (end = partial_.find('\n', begin)) != partial_.npos; begin = end + 1) {
      TakeLine(absl::string_view(partial_).substr(begin, end - begin));
    }
    partial_.erase(0, begin);
    if (partial_.size() > kLongestLine) partial_.resize(kLongestLine);
  }
}

void ProcessLog::TakeLine(absl::string_view line) {
  // A progress bar overwrites itself with carriage returns. Only its last state counts.
  line = absl::StripTrailingAsciiWhitespace(line);
  if (const size_t over = line.rfind('\r'); over != line.npos) line.remove_prefix(over + 1);
  if (absl::StripAsciiWhitespace(line).empty()) return;
  if (absl::StartsWith(line, "listening for HTTP on ")) {
    last_line_ = progress_ = std::string(line);
    absl::ConsumePrefix(&line, "listening for HTTP on ");
    http_address_ = std::string(line);
    return;
  }
  if (absl::ConsumePrefix(&line, "listening on ")) {
    // If the worker advertises another address than this one, " (advertised as ADDRESS)" follows.
    address_ = std::string(line.substr(0, line.find(' ')));
    last_line_ = progress_ = absl::StrCat("listening on ", line);
    return;
  }
  if (const std::string name = Field(line, "event"); line[0] == '{' && !name.empty()) {
    if (name == "listening") address_ = Field(line, "address");
    if (name == "listening_http") http_address_ = Field(line, "address");
    if (name == "refused_to_start") refusal_ = Field(line, "because");
    std::string message = Field(line, "message");
    if (message.empty()) message = Field(line, "why");
    last_line_ = message.empty() ? name : absl::StrCat(name, " ", message);
    progress_ = InFewWords(name, Field(line, "what"), Field(line, "progress"), message);
    const std::string level = Field(line, "level");
    if (level == "warn" || level == "error") last_warning_ = last_line_;
    return;
  }
  absl::string_view said = line;
  const size_t colon = line.find(": ");
  if (absl::StartsWith(line, "baton-") && colon != line.npos && line.find(' ') > colon) {
    said = line.substr(colon + 2);  // RefuseToStart writes "baton-decode: --kv-bytes is ..."
    refusal_ = std::string(said);
  }
  const absl::string_view shown = WithoutPrefix(said);
  last_line_ = std::string(shown);
  const bool is_event = shown.size() < said.size();
  progress_ = is_event ? InFewWords(shown.substr(0, shown.find(' ')), TextField(shown, "what"),
                                    TextField(shown, "progress"), TextField(shown, "why"))
                       : last_line_;
  const char severity = is_event ? said[said.find(' ') + 1] : ' ';
  if (severity == 'W' || severity == 'E') last_warning_ = last_line_;
}

}  // namespace baton
