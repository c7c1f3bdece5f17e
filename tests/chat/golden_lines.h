#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/chat/chat_template.h"
#include "common/chat/chat_value.h"

namespace baton {

// One line of testdata/chat_goldens.jsonl.
struct GoldenLine {
  std::string template_name;
  ChatValue variables;  // A dictionary. All texts are people's.
  TemplateClock clock;
  // The result of transformers: the text, the message of raise_exception, or none of them if it
  // failed.
  const ChatValue* text = nullptr;
  const ChatValue* raised = nullptr;
  ChatValue line;  // Holds the two values above.
};

std::vector<GoldenLine> ReadGoldenLines();

// The templates of testdata, by file name.
std::map<std::string, std::unique_ptr<const ChatTemplate>> ReadGoldenTemplates();

// Returns the entries of `variables`.
ChatVariables VariablesOf(const ChatValue& variables);

}  // namespace baton
