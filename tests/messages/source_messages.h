#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// A message found in a source file, as a user sees it, with "…" in place of each value.
struct SourceMessage {
  int line = 0;  // Line of the message in the source file, counted from 1.
  std::string text;
};

// Returns the messages with which a C++ program may end: the texts of RefuseToStart, of similar
// functions in some modules, and of statuses. If a text has alternatives (a ? b : c), each
// alternative is a separate message. A text is found only if it is written in the call itself.
std::vector<SourceMessage> MessagesOfProgram(absl::string_view source);

// Returns the refusals of a source of `common/model` or `common/tokenizer`: the calls of Fail, Bad,
// Error, ErrorAt, Unsupported and WrongType, and the statuses with an error. The text is the
// message as these functions put it together, for example "head_dim is …; expected an even number".
// A choice (a ? b : c) counts as a value. If the message is not written in the call, the text is
// the call itself. With `returned_texts`, texts that a function returns, or assigns to `fault`, are
// refusals too.
std::vector<SourceMessage> RefusalsOf(absl::string_view source, bool returned_texts = false);

// Returns the texts with which ./baton calls `die`, `refuse` and `say`.
std::vector<SourceMessage> MessagesOfScript(absl::string_view source);

// Returns the texts of `fail` and `required` in a template of the chart, and the texts of `fail` in
// a shell script that the template contains.
std::vector<SourceMessage> MessagesOfTemplate(absl::string_view source);

}  // namespace baton
