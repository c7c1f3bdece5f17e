#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/text_range.h"
#include "common/chat/chat_value.h"
#include "common/chat/interpreter.h"
#include "common/chat/render_meter.h"
#include "common/chat/template_syntax.h"

namespace baton {

// A name that occurs twice has its last value. Names that the template does not use cost nothing.
using ChatVariables = std::vector<std::pair<std::string, ChatValue>>;

struct RenderedText {
  std::string text;  // UTF-8.
  // The bytes that the template itself wrote, in order, apart from each other, none empty. All
  // other bytes are people's.
  std::vector<TextRange> from_template;
};

// The time that a template sees as now.
struct TemplateClock {
  absl::Time now = absl::UnixEpoch();
  absl::TimeZone zone = absl::UTCTimeZone();
};

// A chat template: Jinja as Hugging Face transformers 5.24 runs it. Immutable, so any thread may
// render it, several at a time.
class ChatTemplate {
 public:
  // Returns InvalidArgument, "line 12: ...", if `source` is not in the supported language.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Parse(absl::string_view source);

  // Returns the text that the template writes. Errors:
  //   InvalidArgument     the template called raise_exception. The message is its argument, and is
  //                       meant for the client.
  //   ResourceExhausted   a bound of `limits` was reached: "line 12: ..."
  //   FailedPrecondition  the template failed in another way: "line 12: ..."
  // Adds what was executed to `counts`, if it is given.
  absl::StatusOr<RenderedText> Render(const ChatVariables& variables, const RenderLimits& limits,
                                      const TemplateClock& clock,
                                      ConstructCounts* counts = nullptr) const;

  // True if the template has exactly this text in quotes, as in `message.role == "developer"`.
  bool HasString(absl::string_view text) const;
  // True if the template uses a variable of this name.
  bool HasVariable(absl::string_view name) const;

 private:
  explicit ChatTemplate(std::unique_ptr<const TemplateTree> tree) : tree_(std::move(tree)) {}

  const std::unique_ptr<const TemplateTree> tree_;
};

// Returns the names of everything that ConstructCounts can count.
std::vector<std::string> AllConstructs();

}  // namespace baton
