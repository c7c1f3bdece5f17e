#include "tests/goodput/results/json_text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;

constexpr int64_t kMaxBytes = int64_t{1} << 30;

// Accepts everything, and keeps the position and message of the parser's first error.
class Listener : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    at = position;
    why = error.what();
    return false;
  }
  size_t at = 0;  // Position of the error in bytes.
  std::string why;
};

}  // namespace

absl::StatusOr<json> ParseJson(absl::string_view text) {
  json parsed = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_discarded()) return parsed;
  Listener listener;
  json::sax_parse(text.begin(), text.end(), &listener);
  // The parser's message is "[json.exception.parse_error.101] parse error at line 3, column 7:
  // syntax error while ...".
  const size_t place = listener.why.find("at line ");
  return absl::InvalidArgumentError(
      absl::StrCat("not JSON", place == std::string::npos ? "" : " ",
                   place == std::string::npos ? "" : listener.why.substr(place)));
}

int LineOfJsonError(absl::string_view text) {
  Listener listener;
  json::sax_parse(text.begin(), text.end(), &listener);
  const absl::string_view read = text.substr(0, std::min(listener.at, text.size()));
  return 1 + static_cast<int>(std::count(read.begin(), read.end(), '\n'));
}

absl::StatusOr<json> ReadJsonFile(const std::string& path) {
  struct stat info;
  std::ifstream file;
  if (stat(path.c_str(), &info) == 0) file.open(path, std::ios::binary);
  if (!file.is_open()) {
    const std::string message = absl::StrCat("can't read ", path, ": ", std::strerror(errno));
    return errno == EACCES ? absl::PermissionDeniedError(message) : absl::NotFoundError(message);
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("can't read ", path, ": it is a folder"));
  }
  if (info.st_size > kMaxBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("can't read ", path, ": its ", info.st_size,
                                                     " bytes are more than ", kMaxBytes));
  }
  std::stringstream text;
  text << file.rdbuf();
  absl::StatusOr<json> parsed = ParseJson(text.str());
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", parsed.status().message()));
  }
  return parsed;
}

}  // namespace baton
