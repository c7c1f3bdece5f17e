#include "router/door/api_keys.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include <sys/stat.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr size_t kMaxKeyBytes = 512;
constexpr size_t kMaxKeys = 10000;

absl::Status CheckKey(absl::string_view from, absl::string_view key) {
  if (key.empty() || key.size() > kMaxKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(from, " has a key of ", key.size(), " bytes; a key has 1 to ", kMaxKeyBytes));
  }
  for (const char c : key) {
    if (absl::ascii_isgraph(static_cast<unsigned char>(c))) continue;
    return absl::InvalidArgumentError(absl::StrCat(from, " has a key with the byte ",
                                                   static_cast<int>(c) & 0xff,
                                                   "; a key is visible ASCII without spaces"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ReadKeys(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, " can't be read, or is empty: ", std::strerror(errno == 0 ? ENODATA : errno)));
  }
  std::vector<std::string> keys;
  int number = 0;
  const std::string content = text.str();
  for (absl::string_view line : absl::StrSplit(content, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    RETURN_IF_ERROR(CheckKey(absl::StrCat("line ", number, " of ", file), line));
    keys.emplace_back(line);
  }
  if (keys.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file, " has no key; it takes one a line"));
  }
  if (keys.size() > kMaxKeys) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, " has ", keys.size(), " keys; at most ", kMaxKeys));
  }
  return keys;
}

// Takes a time that depends only on the lengths.
bool Equal(absl::string_view a, absl::string_view b) {
  unsigned char differs = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < b.size(); ++i) {
    differs |= static_cast<unsigned char>(b[i] ^ (a.empty() ? 0 : a[i % a.size()]));
  }
  return differs == 0;
}

}  // namespace

ApiKeys::FileState ApiKeys::StateOf(const std::string& file) {
  struct stat status {};
  if (file.empty() || stat(file.c_str(), &status) != 0) return {};
  return {status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec, status.st_size,
          static_cast<int64_t>(status.st_ino)};
}

absl::StatusOr<std::unique_ptr<ApiKeys>> ApiKeys::Load(const std::string& file,
                                                       const char* variable) {
  auto keys = std::make_unique<ApiKeys>();
  if (const char* key = std::getenv(variable)) {
    RETURN_IF_ERROR(CheckKey(absl::StrCat("$", variable), key));
    keys->of_variable_.emplace_back(key);
  }
  std::vector<std::string> all = keys->of_variable_;
  if (!file.empty()) {
    keys->file_ = file;
    keys->state_ = StateOf(file);
    ASSIGN_OR_RETURN(std::vector<std::string> of_file, ReadKeys(file));
    all.insert(all.end(), of_file.begin(), of_file.end());
  }
  MutexLock lock(&keys->mutex_);
  keys->keys_ = std::move(all);
  return keys;
}

bool ApiKeys::required() const {
  MutexLock lock(&mutex_);
  return !keys_.empty();
}

absl::Status ApiKeys::Check(absl::string_view authorization) const {
  constexpr absl::string_view kScheme = "bearer ";
  MutexLock lock(&mutex_);
  if (keys_.empty()) return absl::OkStatus();
  if (authorization.empty()) {
    return absl::UnauthenticatedError(
        "this router needs an API key: send the header \"Authorization: Bearer KEY\"");
  }
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) {
    return absl::UnauthenticatedError(
        "the header Authorization is not \"Bearer KEY\", which this router takes");
  }
  const absl::string_view key =
      absl::StripAsciiWhitespace(authorization.substr(kScheme.size())).substr(0, kMaxKeyBytes + 1);
  bool found = false;
  for (const std::string& known : keys_) found |= Equal(key, known);
  if (found) return absl::OkStatus();
  return absl::UnauthenticatedError("the API key is not one that this router takes");
}

void ApiKeys::ReadIfChanged() {
  if (file_.empty()) return;
  const FileState state = StateOf(file_);
  if (state == state_) return;
  state_ = state;
  absl::StatusOr<std::vector<std::string>> of_file = ReadKeys(file_);
  if (!of_file.ok()) {
    Log(Severity::kError, "api_keys",
        {{"because", of_file.status().message()}, {"kept", "the keys that were read before"}});
    return;
  }
  of_file->insert(of_file->end(), of_variable_.begin(), of_variable_.end());
  Log(Severity::kInfo, "api_keys", {{"file", file_}, {"keys", of_file->size()}});
  MutexLock lock(&mutex_);
  keys_ = *std::move(of_file);
}

}  // namespace baton
