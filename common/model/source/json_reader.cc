#include "common/model/source/json_reader.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/lfs_pointer.h"
#include "common/base/status_macros.h"
#include "common/model/source/folder_advice.h"

namespace baton {
namespace {

using nlohmann::json;

std::string Key(absl::string_view key) { return std::string(key); }

// Formats a value for a message. The text is short: an object, or a long or nested list, is named
// without its content.
std::string Describe(const json* value) {
  if (value == nullptr) return "missing";
  if (value->is_object()) return "an object";
  const bool flat = std::none_of(value->begin(), value->end(),
                                 [](const json& item) { return item.is_structured(); });
  if (value->is_array() && (value->size() > 8 || !flat)) {
    return absl::StrCat("a list of ", value->size());
  }
  std::string text = value->dump(-1, ' ', /*ensure_ascii=*/true);
  constexpr size_t kLongest = 60;
  if (text.size() > kLongest) text = absl::StrCat(text.substr(0, kLongest), "...");
  return text;
}

bool IntIn(const json& value, int lowest, int highest) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    return number <= static_cast<uint64_t>(std::numeric_limits<int>::max()) &&
           static_cast<int>(number) >= lowest && static_cast<int>(number) <= highest;
  }
  if (!value.is_number_integer()) return false;
  const auto number = value.get<int64_t>();
  return number >= lowest && number <= highest;
}

std::string IntRange(int lowest, int highest) {
  return absl::StrCat("an integer from ", lowest, " to ", highest);
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes) {
  // O_NONBLOCK: open must not hang if the path is a pipe.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ModelFileError(errno, path);
  const auto close_fd = absl::MakeCleanup([fd] { close(fd); });
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  if (static_cast<size_t>(info.st_size) > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", info.st_size, " bytes; expected at most ", max_bytes));
  }
  std::string text(info.st_size, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read(fd, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, path);
    if (got == 0) break;
    done += got;
  }
  text.resize(done);
  return text;
}

struct JsonReader::File {
  std::string path;
  json root;
  absl::Status status;
};

JsonReader::JsonReader(std::shared_ptr<File> file, const json* object, std::string prefix)
    : file_(std::move(file)), object_(object), prefix_(std::move(prefix)) {}

absl::StatusOr<JsonReader> JsonReader::Open(const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const auto text, ReadSmallFile(path, max_bytes));
  if (IsLfsPointer(text)) return absl::InvalidArgumentError(LfsPointerMessage(path));
  auto file = std::make_shared<File>();
  file->path = path;
  file->root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file->root.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not valid JSON (", text.size(),
                                                   " bytes)", text.empty() ? ", it is empty" : "",
                                                   "; fetch it again"));
  }
  if (!file->root.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is ", Describe(&file->root), "; expected a JSON object"));
  }
  const json* root = &file->root;
  return JsonReader(std::move(file), root, "");
}

const absl::Status& JsonReader::status() const { return file_->status; }
const std::string& JsonReader::path() const { return file_->path; }

const json* JsonReader::Find(absl::string_view key) const {
  const auto found = object_->find(Key(key));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonReader::Has(absl::string_view key) const { return Find(key) != nullptr; }

bool JsonReader::HasNull(absl::string_view key) const {
  const auto found = object_->find(Key(key));
  return found != object_->end() && found->is_null();
}

std::vector<std::string> JsonReader::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_->items()) keys.push_back(key);
  return keys;
}

bool JsonReader::Is(absl::string_view key, absl::string_view value) const {
  return object_->at(Key(key)) == json::parse(value.begin(), value.end());
}

void JsonReader::Fail(absl::string_view key, absl::string_view expected) {
  if (!file_->status.ok()) return;
  file_->status = absl::InvalidArgumentError(absl::StrCat(
      file_->path, ": ", prefix_, key, " is ", Describe(Find(key)), "; expected ", expected));
}

const json* JsonReader::Require(absl::string_view key, absl::string_view expected) {
  const json* value = Find(key);
  if (value == nullptr) Fail(key, expected);
  return value;
}

int JsonReader::Int(absl::string_view key, int lowest, int highest, std::optional<int> fallback) {
  const json* value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && IntIn(*value, lowest, highest)) return value->get<int>();
  Fail(key, IntRange(lowest, highest));
  return lowest;
}

double JsonReader::Number(absl::string_view key, double lowest, double highest,
                          std::optional<double> fallback) {
  const json* value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_number()) {
    const double number = value->get<double>();
    if (number >= lowest && number <= highest) return number;
  }
  Fail(key, absl::StrCat("a number from ", lowest, " to ", highest));
  return lowest;
}

bool JsonReader::Bool(absl::string_view key, bool fallback) {
  const json* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Fail(key, "true or false");
  return fallback;
}

std::string JsonReader::String(absl::string_view key, std::optional<std::string> fallback) {
  const json* value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  Fail(key, "a string");
  return "";
}

std::vector<std::string> JsonReader::Strings(absl::string_view key) {
  constexpr char kExpected[] = "a list of strings";
  std::vector<std::string> strings;
  const json* value = Require(key, kExpected);
  if (value == nullptr) return strings;
  if (!value->is_array()) Fail(key, kExpected);
  if (value->is_array()) {
    for (const json& item : *value) {
      if (!item.is_string()) {
        Fail(key, kExpected);
        return {};
      }
      strings.push_back(item.get<std::string>());
    }
  }
  return strings;
}

std::vector<std::string> JsonReader::StringOrStrings(absl::string_view key) {
  const json* value = Find(key);
  if (value != nullptr && value->is_string()) return {value->get<std::string>()};
  return Strings(key);
}

std::vector<int> JsonReader::Ints(absl::string_view key, int lowest, int highest) {
  const json* value = Find(key);
  if (value == nullptr) return {};
  std::vector<int> ints;
  const auto add = [&](const json& item) {
    if (!IntIn(item, lowest, highest)) return false;
    ints.push_back(item.get<int>());
    return true;
  };
  bool good = true;
  if (value->is_array()) {
    for (const json& item : *value) good = good && add(item);
  } else {
    good = add(*value);
  }
  if (good) return ints;
  Fail(key, absl::StrCat(IntRange(lowest, highest), ", or a list of such integers"));
  return {};
}

std::vector<float> JsonReader::Numbers(absl::string_view key, double lowest, double highest,
                                       size_t count) {
  const std::string expected =
      absl::StrCat("a list of ", count, " numbers from ", lowest, " to ", highest);
  std::vector<float> numbers(count, static_cast<float>(lowest));
  const json* value = Require(key, expected);
  if (value == nullptr) return numbers;
  bool good = value->is_array() && value->size() == count;
  for (size_t i = 0; good && i < count; ++i) {
    const json& item = (*value)[i];
    good = item.is_number() && item.get<double>() >= lowest && item.get<double>() <= highest;
    if (good) numbers[i] = item.get<float>();
  }
  if (!good) Fail(key, expected);
  return numbers;
}

std::vector<std::vector<int>> JsonReader::IntLists(absl::string_view key, int lowest, int highest,
                                                   size_t max, size_t longest) {
  std::vector<std::vector<int>> lists;
  const json* value = Find(key);
  if (value == nullptr) return lists;
  bool good = value->is_array() && value->size() <= max;
  for (size_t i = 0; good && i < value->size(); ++i) {
    const json& list = (*value)[i];
    good = list.is_array() && !list.empty() && list.size() <= longest;
    for (size_t k = 0; good && k < list.size(); ++k) good = IntIn(list[k], lowest, highest);
    if (good) lists.push_back(list.get<std::vector<int>>());
  }
  if (good) return lists;
  Fail(key, absl::StrCat("at most ", max, " lists of 1 to ", longest, " of ",
                         IntRange(lowest, highest)));
  return {};
}

std::map<std::string, std::string> JsonReader::StringMap(absl::string_view key) {
  constexpr char kExpected[] = "an object of strings";
  std::map<std::string, std::string> strings;
  const json* value = Require(key, kExpected);
  if (value == nullptr) return strings;
  if (!value->is_object()) {
    Fail(key, kExpected);
    return strings;
  }
  for (const auto& [name, item] : value->items()) {
    if (!item.is_string()) {
      Fail(key, kExpected);
      return {};
    }
    strings.emplace(name, item.get<std::string>());
  }
  return strings;
}

JsonReader JsonReader::Object(absl::string_view key) {
  static const json* const kEmpty = new json(json::object());
  const json* value = Require(key, "an object");
  if (value != nullptr && !value->is_object()) {
    Fail(key, "an object");
    value = nullptr;
  }
  return JsonReader(file_, value == nullptr ? kEmpty : value, absl::StrCat(prefix_, key, "."));
}

}  // namespace baton
