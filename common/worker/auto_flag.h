#pragma once

#include <optional>
#include <string>

#include "absl/flags/marshalling.h"
#include "absl/strings/string_view.h"

namespace baton {

// Value of a flag that takes a T, or "auto". `value` is empty for "auto": the program then chooses.
template <typename T>
struct OrAuto {
  std::optional<T> value;
};

template <typename T>
bool AbslParseFlag(absl::string_view text, OrAuto<T>* flag, std::string* error) {
  flag->value.reset();
  if (text == "auto") return true;
  return absl::ParseFlag(text, &flag->value.emplace(), error);
}

template <typename T>
std::string AbslUnparseFlag(const OrAuto<T>& flag) {
  return flag.value ? absl::UnparseFlag(*flag.value) : "auto";
}

}  // namespace baton
