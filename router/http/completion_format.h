#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "baton/v1/token.pb.h"
#include "common/tokenizer/tokenizer.h"
#include "router/http/completion_logprobs.h"

namespace baton {

// The parts in which the answers of /v1/completions and of /v1/chat/completions differ. The objects
// have no state, and live as long as the process. Any thread.
class CompletionFormat {
 public:
  // Returns the format of one of the two paths.
  static const CompletionFormat& Of(bool chat);
  virtual ~CompletionFormat() = default;

  // Returns the value of `object`.
  virtual absl::string_view Object(bool stream) const = 0;
  // Appends the member of a choice that has the text of a whole answer.
  virtual void AppendWholeText(absl::string_view text, std::string* out) const = 0;
  // Appends the member of a choice that has a part of the text. `first` and `last` say whether the
  // event is the first and the last one of its answer; the last one has no text.
  virtual void AppendPartOfText(absl::string_view text, bool first, bool last,
                                std::string* out) const = 0;
  // Adds a token to the object `logprobs`; see LogprobLists.
  virtual void AddLogprob(const v1::Token& token, size_t offset, int alternatives,
                          const Tokenizer& tokenizer, LogprobLists* lists) const = 0;
  // Appends the object `logprobs`, with the tokens of `before` (which may be null) first.
  virtual void AppendLogprobs(const LogprobLists* before, const LogprobLists& lists,
                              std::string* out) const = 0;
  // True if the ids and logprobs of a prompt are members of its choices. Otherwise they stand
  // beside the list of choices.
  virtual bool PromptIsInChoices() const = 0;
};

}  // namespace baton
