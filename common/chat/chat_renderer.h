#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/chat/chat.h"
#include "common/chat/chat_template.h"
#include "common/chat/normal_chat.h"
#include "common/metrics/counter.h"
#include "common/model/source/chat_texts.h"

namespace baton {

// Writes conversations as the text of a prompt, with the chat template of a model. Constant once
// loaded; any thread.
class ChatRenderer {
 public:
  // Reads the templates of a model. `choice` is "auto", "none" for no chat, or the file of a
  // template that takes the place of the model's own.
  //
  // A model without a template, and one whose template can't be parsed, give a renderer that
  // refuses every conversation (usable()). Returns NotFound if the file of `choice` can't be read,
  // and InvalidArgument if it is malformed.
  static absl::StatusOr<std::unique_ptr<const ChatRenderer>> Load(const ChatTexts& texts,
                                                                  const std::string& choice);

  // OK, or why every conversation is refused: InvalidArgument.
  const absl::Status& usable() const { return usable_; }
  // Says for the log which templates there are, and what they take.
  const std::string& description() const { return description_; }

  struct Prompt {
    std::string text;
    // Parts of the text that the template itself wrote. Only in them may special tokens be found.
    std::vector<TextRange> from_template;
    size_t broken_arguments = 0;  // As in NormalChat.
  };
  // Writes a conversation. Returns InvalidArgument, with the parameter, for a conversation that is
  // none, that the template refuses (raise_exception), or for which the template fails or takes too
  // long.
  absl::StatusOr<Prompt> Render(const Chat& chat, const TemplateClock& clock) const;
  // Sum of NormalChat::broken_arguments over all conversations that were written.
  const Counter& broken_arguments() const { return broken_arguments_; }

 private:
  struct Named {
    absl::StatusOr<std::unique_ptr<const ChatTemplate>> parsed;
    TemplateTraits traits;
  };
  ChatRenderer() = default;
  void Add(const std::string& name, absl::string_view source);
  void Describe();

  std::map<std::string, Named> templates_;
  ChatVariables special_tokens_;
  absl::Status usable_;
  std::string description_;
  mutable Counter broken_arguments_;
};

}  // namespace baton
