#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// A pattern that cuts text into words, compiled by PCRE2 (to machine code where that works).
// Constant once built; any thread.
class SplitRegex {
 public:
  // `pattern` in Oniguruma's syntax; InvalidArgument where it is malformed or unsupported.
  static absl::StatusOr<SplitRegex> Compile(absl::string_view pattern);
  // Matches exactly `text`.
  static absl::StatusOr<SplitRegex> CompileLiteral(absl::string_view text);

  SplitRegex(SplitRegex&&);
  SplitRegex& operator=(SplitRegex&&);
  ~SplitRegex();

  // Calls `piece` for each match and each stretch between matches, in order; together they are
  // `text`. A match may be empty, but not right behind another. `text` is well-formed UTF-8, and at
  // most 1 GiB. InvalidArgument where matching needs more steps or memory than its limits; pieces
  // before that place have been handed out then.
  absl::Status Split(absl::string_view text,
                     absl::FunctionRef<void(absl::string_view text, bool matched)> piece) const;

 private:
  struct Code;
  explicit SplitRegex(std::unique_ptr<Code> code);
  static absl::StatusOr<SplitRegex> CompilePcre2(const std::string& pattern);

  std::unique_ptr<Code> code_;
};

}  // namespace baton
