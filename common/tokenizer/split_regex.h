#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// A regular expression that cuts text into words. Compiled by PCRE2, to machine code if possible.
// Constant once built; any thread.
class SplitRegex {
 public:
  // Compiles a pattern in Oniguruma's syntax. Returns InvalidArgument if it is malformed or
  // unsupported.
  static absl::StatusOr<SplitRegex> Compile(absl::string_view pattern);
  // Compiles a pattern that matches exactly `text`.
  static absl::StatusOr<SplitRegex> CompileLiteral(absl::string_view text);

  SplitRegex(SplitRegex&&);
  SplitRegex& operator=(SplitRegex&&);
  ~SplitRegex();

  // Calls `piece` for each match and for each part between matches, in order. All these parts
  // together are `text`. A match may be empty, but not right after another match. `text` must be
  // well-formed UTF-8 of at most 1 GiB. Stops at the first status of `piece` that is not OK, and
  // returns it. Returns InvalidArgument if matching exceeds its limit of steps or memory. `piece`
  // has then been called for the parts before the point at which matching stopped.
  absl::Status Split(
      absl::string_view text,
      absl::FunctionRef<absl::Status(absl::string_view text, bool matched)> piece) const;

 private:
  struct Code;
  explicit SplitRegex(std::unique_ptr<Code> code);
  static absl::StatusOr<SplitRegex> CompilePcre2(const std::string& pattern);

  std::unique_ptr<Code> code_;
};

}  // namespace baton
