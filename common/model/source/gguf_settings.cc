#include "common/model/source/gguf_settings.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// Returns what a message shows of a value.
std::string Shown(const GgufValue& value) {
  constexpr size_t kLongest = 80;
  if (const auto* const integer = std::get_if<int64_t>(&value)) return absl::StrCat(*integer);
  if (const auto* const number = std::get_if<double>(&value)) return absl::StrCat(*number);
  if (const auto* const flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* const text = std::get_if<std::string>(&value)) {
    return absl::StrCat("\"", absl::CHexEscape(text->substr(0, kLongest)),
                        text->size() > kLongest ? "...\"" : "\"");
  }
  return "a list";
}

// Returns the one value of a list whose values are all equal.
template <typename T>
std::optional<T> Same(const GgufValue& value) {
  const auto* const list = std::get_if<std::vector<T>>(&value);
  if (list == nullptr || list->empty()) return std::nullopt;
  const bool same =
      std::all_of(list->begin(), list->end(), [&](const T& one) { return one == list->front(); });
  return same ? std::optional<T>(list->front()) : std::nullopt;
}

}  // namespace

const GgufValue* GgufSettings::Find(const std::string& key) {
  read_.insert(key);
  const auto found = file_.settings().find(key);
  return found == file_.settings().end() ? nullptr : &found->second;
}

void GgufSettings::Fail(const std::string& key, absl::string_view expected) {
  if (!status_.ok()) return;
  const auto found = file_.settings().find(key);
  status_ = absl::InvalidArgumentError(absl::StrCat(
      file_.file().path(), ": ",
      found == file_.settings().end() ? absl::StrCat("has no setting ", key)
                                      : absl::StrCat("setting ", key, " is ", Shown(found->second)),
      "; expected ", expected));
}

int GgufSettings::Int(const std::string& key, int lowest, int highest,
                      std::optional<int> fallback) {
  const GgufValue* const value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  std::optional<int64_t> integer;
  if (value != nullptr) {
    if (const auto* const one = std::get_if<int64_t>(value)) integer = *one;
    if (const auto same = Same<int64_t>(*value)) integer = *same;
  }
  if (!integer || *integer < lowest || *integer > highest) {
    Fail(key, absl::StrCat("an integer from ", lowest, " to ", highest));
    return fallback.value_or(lowest);
  }
  return static_cast<int>(*integer);
}

double GgufSettings::Number(const std::string& key, double lowest, double highest,
                            std::optional<double> fallback) {
  const GgufValue* const value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  std::optional<double> number;
  if (value != nullptr) {
    if (const auto* const one = std::get_if<double>(value)) number = *one;
    if (const auto* const one = std::get_if<int64_t>(value)) number = static_cast<double>(*one);
    if (const auto same = Same<double>(*value)) number = *same;
  }
  if (!number || !(*number >= lowest && *number <= highest)) {
    Fail(key, absl::StrCat("a number from ", lowest, " to ", highest));
    return fallback.value_or(lowest);
  }
  return *number;
}

bool GgufSettings::Bool(const std::string& key, bool fallback) {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return fallback;
  if (const auto* const flag = std::get_if<bool>(value)) return *flag;
  Fail(key, "true or false");
  return fallback;
}

std::string GgufSettings::Text(const std::string& key, std::optional<std::string> fallback) {
  const GgufValue* const value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr) {
    if (const auto* const text = std::get_if<std::string>(value)) return *text;
  }
  Fail(key, "a text");
  return fallback.value_or("");
}

std::vector<std::string> GgufSettings::Texts(const std::string& key) {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return {};
  if (const auto* const texts = std::get_if<std::vector<std::string>>(value)) return *texts;
  Fail(key, "a list of texts");
  return {};
}

std::vector<int64_t> GgufSettings::Ints(const std::string& key) {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return {};
  if (const auto* const integers = std::get_if<std::vector<int64_t>>(value)) return *integers;
  Fail(key, "a list of integers");
  return {};
}

std::vector<double> GgufSettings::Numbers(const std::string& key) {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return {};
  if (const auto* const numbers = std::get_if<std::vector<double>>(value)) return *numbers;
  Fail(key, "a list of numbers");
  return {};
}

std::vector<std::string> GgufSettings::Unread(absl::string_view prefix) const {
  std::vector<std::string> unread;
  for (const auto& [key, value] : file_.settings()) {
    if (absl::StartsWith(key, prefix) && read_.count(key) == 0) unread.push_back(key);
  }
  return unread;
}

}  // namespace baton
