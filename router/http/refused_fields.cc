#include "router/http/refused_fields.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr absl::string_view kNoGrammar =
    "answers in a given form are not supported; ask for the form in the prompt, and check the "
    "answer";
constexpr absl::string_view kNoTools = "calls of functions are not supported; leave it out";
constexpr absl::string_view kOnlyText = "this server reads and writes only text; leave it out";

// Fields that all paths refuse.
constexpr RefusedField kRefusedFields[] = {
    {"allowed_token_ids",
     "a list of the only tokens that may be sampled is not supported; use logit_bias", "", true},
    {"audio", kOnlyText},
    {"function_call", kNoTools, "\"none\""},
    {"functions", kNoTools},
    {"grammar", kNoGrammar},
    {"guided_choice", kNoGrammar},
    {"guided_decoding_backend", kNoGrammar},
    {"guided_grammar", kNoGrammar},
    {"guided_json", kNoGrammar},
    {"guided_regex", kNoGrammar},
    {"images", kOnlyText},
    {"include_stop_str_in_output",
     "a stop string is never part of the answer; append stop_reason to the text instead"},
    {"json_schema", kNoGrammar},
    {"kv_transfer_params",
     "the router chooses the workers and moves the KV by itself; leave it out"},
    {"length_penalty", "it works only with beam search, which is not supported; leave it out",
     "1|1.0"},
    {"modalities", kOnlyText, "[\"text\"]"},
    {"prompt_embeds", "prompts are text or token ids; send prompt"},
    {"response_format", kNoGrammar, "{\"type\":\"text\"}"},
    {"structured_outputs", kNoGrammar},
    {"suffix", "text can only be continued, not filled in before a suffix; leave it out"},
    {"thinking_token_budget", "a limit on thinking alone is not supported; use max_tokens"},
    {"truncate_prompt_tokens", "prompts are never cut; send the part of the prompt that counts"},
    {"use_beam_search",
     "beam search is not supported; use n and logprobs to choose among several answers"},
};

// Fields that only /v1/completions refuses.
constexpr RefusedField kRefusedTextFields[] = {
    {"messages", "a conversation goes to /v1/chat/completions; here the prompt is one text"},
};

// Fields that only /v1/chat/completions refuses.
constexpr RefusedField kRefusedChatFields[] = {
    {"add_special_tokens", "the chat template writes the special tokens; leave it out"},
    {"best_of", "choosing the best of several answers is not supported; leave it out", "1"},
    {"chat_template",
     "the model's own chat template is used; to send a text of your own, use /v1/completions"},
    {"echo", "the answer of a chat never has its prompt; use /v1/completions"},
    {"prompt", "the prompt of a chat is its messages; a text goes to /v1/completions"},
};

// Returns the entry of `name` in a table, or null.
const RefusedField* FindIn(absl::Span<const RefusedField> fields, absl::string_view name) {
  const auto* const found =
      std::find_if(fields.begin(), fields.end(),
                   [name](const RefusedField& field) { return field.name == name; });
  return found == fields.end() ? nullptr : found;
}

constexpr size_t kMaxHarmlessBytes = 64;

// Returns true if a value, as it is written in the body, asks for nothing.
bool AsksForNothing(const RefusedField& field, absl::string_view value) {
  if (value.size() > kMaxHarmlessBytes) return false;
  std::string compact;
  std::copy_if(value.begin(), value.end(), std::back_inserter(compact),
               [](unsigned char byte) { return !absl::ascii_isspace(byte); });
  if (compact == "[]") return !field.empty_list_asks;
  if (compact == "null" || compact == "false" || compact == "\"\"" || compact == "{}") return true;
  const std::vector<absl::string_view> harmless =
      absl::StrSplit(field.harmless, '|', absl::SkipEmpty());
  return std::find(harmless.begin(), harmless.end(), compact) != harmless.end();
}

}  // namespace

const RefusedField* FindRefusedField(absl::string_view name, bool chat) {
  const RefusedField* const found = FindIn(kRefusedFields, name);
  if (found != nullptr) return found;
  return chat ? FindIn(kRefusedChatFields, name) : FindIn(kRefusedTextFields, name);
}

absl::Status ReadRefusedField(const RefusedField& field, JsonCursor* cursor) {
  const std::string described = cursor->Describe();
  absl::string_view value;
  RETURN_IF_ERROR(cursor->Skip(&value));
  if (AsksForNothing(field, value)) return absl::OkStatus();
  return BadParameter(field.name, absl::StrCat(field.name, " is ", described, "; ", field.reason));
}

}  // namespace baton
