#include "kernels/mutations/mutation_list.h"

#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace baton::mutations {
namespace {

class Parser {
 public:
  explicit Parser(absl::string_view path) : path_(path) {}

  absl::StatusOr<std::vector<ListedMutation>> Parse(absl::string_view contents) {
    for (const absl::string_view line : absl::StrSplit(contents, '\n')) {
      ++line_;
      RETURN_IF_ERROR(Take(absl::StripTrailingAsciiWhitespace(line)));
    }
    RETURN_IF_ERROR(EndMutation());
    return mutations_;
  }

 private:
  absl::Status Wrong(int line, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ":", line, ": ", what));
  }

  absl::Status Take(absl::string_view line) {
    if (line.empty()) return EndReplacement();
    if (line[0] == '#') return absl::OkStatus();
    if (absl::ConsumePrefix(&line, "file ")) {
      file_ = std::string(absl::StripAsciiWhitespace(line));
      return EndMutation();
    }
    if (absl::ConsumePrefix(&line, "mutation ")) return Begin(absl::StripAsciiWhitespace(line));
    if (line[0] == '-' || line[0] == '+' || line[0] == ' ') return AddCode(line[0], line.substr(1));
    return Wrong(line_, absl::StrCat("'", line,
                                     "' begins with neither 'file ', 'mutation ', '#', '-', '+' "
                                     "nor a space"));
  }

  absl::Status Begin(absl::string_view name) {
    RETURN_IF_ERROR(EndMutation());
    if (file_.empty()) {
      return Wrong(line_,
                   absl::StrCat("mutation '", name, "' stands before the first 'file ' line"));
    }
    if (!names_.emplace(name).second) {
      return Wrong(line_, absl::StrCat("there are two mutations named '", name, "'"));
    }
    mutations_.push_back({std::string(name), file_, line_, {}});
    open_ = true;
    return absl::OkStatus();
  }

  absl::Status AddCode(char sign, absl::string_view code) {
    if (!open_) return Wrong(line_, "code before the first 'mutation ' line");
    if (in_replacement_ == 0) {
      in_replacement_ = line_;
      replacement_ = {};
      replacement_.line = line_;
    }
    if (sign != '+') absl::StrAppend(&replacement_.text, code, "\n");
    if (sign != '-') absl::StrAppend(&replacement_.wrong, code, "\n");
    changes_ = changes_ || sign != ' ';
    return absl::OkStatus();
  }

  absl::Status EndReplacement() {
    if (in_replacement_ == 0) return absl::OkStatus();
    if (!changes_) {
      return Wrong(in_replacement_, "code without a line that begins with '-' or '+'");
    }
    if (absl::StripAsciiWhitespace(replacement_.text).empty()) {
      return Wrong(in_replacement_,
                   "there is no text to look for: give a line that begins with '-' or a space");
    }
    mutations_.back().replacements.push_back(replacement_);
    in_replacement_ = 0;
    changes_ = false;
    return absl::OkStatus();
  }

  absl::Status EndMutation() {
    RETURN_IF_ERROR(EndReplacement());
    if (open_ && mutations_.back().replacements.empty()) {
      return Wrong(mutations_.back().line,
                   absl::StrCat("mutation '", mutations_.back().name, "' changes nothing"));
    }
    open_ = false;
    return absl::OkStatus();
  }

  const std::string path_;
  int line_ = 0;
  std::string file_;
  std::set<std::string> names_;
  std::vector<ListedMutation> mutations_;
  bool open_ = false;       // true: further lines belong to the last mutation
  int in_replacement_ = 0;  // line where the current replacement begins; 0: not in a replacement
  bool changes_ = false;
  Replacement replacement_;
};

}  // namespace

absl::StatusOr<std::vector<ListedMutation>> ParseMutationList(absl::string_view path,
                                                              absl::string_view contents) {
  return Parser(path).Parse(contents);
}

}  // namespace baton::mutations
