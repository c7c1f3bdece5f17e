#include "common/fetch/gguf_choice.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include <fnmatch.h>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"

namespace baton {
namespace {

constexpr size_t kMaxNamed = 20;  // models that a message names
// A part's name ends like this: the first number is the part's, the second the count of parts.
constexpr absl::string_view kPartEnd = "-00002-of-00003.gguf";

bool IsPart(const std::string& name) {
  return fnmatch("*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].gguf", name.c_str(),
                 0) == 0;
}

// Returns the name of the first part of a split file, and any other name as it is.
std::string FirstPart(std::string name) {
  if (IsPart(name)) name.replace(name.size() - kPartEnd.size(), 6, "-00001");
  return name;
}

// Returns true if `choice` names the model whose file, or first part, is called `first`.
bool Fits(const std::string& first, absl::string_view choice) {
  if (choice.empty()) return true;
  if (absl::EndsWith(choice, ".gguf")) return first == FirstPart(std::string(choice));
  absl::string_view stem = first;
  if (IsPart(first)) {
    stem.remove_suffix(kPartEnd.size());
  } else {
    absl::ConsumeSuffix(&stem, ".gguf");
  }
  if (!absl::EndsWithIgnoreCase(stem, choice)) return false;
  stem.remove_suffix(choice.size());
  return stem.empty() || absl::EndsWith(stem, "-") || absl::EndsWith(stem, ".") ||
         absl::EndsWith(stem, "/");
}

// Returns the length of the longest beginning of `choice` that occurs in `name`, in any case.
size_t Likeness(const std::string& name, absl::string_view choice) {
  const std::string in = absl::AsciiStrToLower(name), wanted = absl::AsciiStrToLower(choice);
  size_t length = 0;
  while (length < wanted.size() && absl::StrContains(in, wanted.substr(0, length + 1))) ++length;
  return length;
}

// Lists names for a message.
std::string Listed(std::vector<std::string> names, absl::string_view choice) {
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return Likeness(a, choice) > Likeness(b, choice);
  });
  const size_t more = names.size() - std::min(names.size(), kMaxNamed);
  names.resize(names.size() - more);
  for (std::string& name : names) name = absl::CHexEscape(name);
  return absl::StrCat(absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ChooseGguf(const std::vector<std::string>& names,
                                                    absl::string_view choice) {
  std::map<std::string, std::set<std::string>> models;  // files by the name of the first part
  for (const std::string& name : names) {
    if (absl::EndsWith(name, ".gguf")) models[FirstPart(name)].insert(name);
  }
  if (models.empty()) return absl::NotFoundError("has no GGUF files");
  std::vector<std::string> all, fitting;
  for (const auto& [first, files] : models) {
    all.push_back(first);
    if (Fits(first, choice)) fitting.push_back(first);
  }
  if (fitting.empty())
    return absl::NotFoundError(absl::StrCat("has no GGUF file '", choice,
                                            "'; give one that it has: ", Listed(all, choice)));
  if (fitting.size() > 1)
    return absl::FailedPreconditionError(
        absl::StrCat("has ", fitting.size(),
                     " GGUF files to choose from; give the name of one behind the model's: ",
                     Listed(fitting, choice)));
  const std::string& first = fitting.front();
  if (!IsPart(first)) return std::vector<std::string>{first};
  const std::string stem = first.substr(0, first.size() - kPartEnd.size());
  constexpr size_t kCountEnd = absl::string_view("00003.gguf").size();
  int count = 0;
  BATON_CHECK(absl::SimpleAtoi(first.substr(first.size() - kCountEnd, 5), &count));
  std::vector<std::string> parts;
  for (int part = 1; part <= count; ++part) {
    const std::string name = absl::StrFormat("%s-%05d-of-%05d.gguf", stem, part, count);
    if (models[first].count(name) > 0) parts.push_back(name);
  }
  if (parts.empty() || parts.size() < static_cast<size_t>(count))
    return absl::FailedPreconditionError(absl::StrCat("has ", parts.size(), " of the ", count,
                                                      " parts of '", first,
                                                      "'; take another file of the model"));
  return parts;
}

}  // namespace baton
