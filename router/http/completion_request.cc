#include "router/http/completion_request.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "baton/v1/sampling.pb.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"
#include "router/http/json_cursor.h"
#include "router/http/json_fields.h"
#include "router/http/shared_fields.h"

namespace baton {
namespace {

constexpr uint32_t kDefaultMaxTokens = 16;

using Kind = JsonCursor::Kind;
using Prompt = decltype(ClientRequest::prompt);

// Reads one request. The state that several fields decide together is here until all fields were
// read.
class CompletionParser {
 public:
  explicit CompletionParser(const CompletionSettings& settings)
      : shared_(settings, /*chat=*/false) {}

  absl::StatusOr<CompletionRequest> Parse(absl::string_view body) {
    RETURN_IF_ERROR(ReadBody(body, [this](absl::string_view name, JsonCursor* cursor) {
      return ReadField(name, cursor);
    }));
    RETURN_IF_ERROR(CheckTogether());
    SetDefaults();
    CompletionRequest& request = shared_.request();
    for (Prompt& prompt : prompts_) {
      ClientRequest& client = request.prompts.emplace_back(shared_.base());
      // The options for text are not allowed beside ids.
      if (std::holds_alternative<std::string>(prompt)) {
        client.parse_special = true;
        client.add_special = add_special_;
      }
      client.prompt = std::move(prompt);
    }
    return std::move(request);
  }

 private:
  absl::Status ReadField(absl::string_view name, JsonCursor* cursor);
  absl::Status ReadPrompt(JsonCursor* cursor);
  absl::Status ReadPromptList(const JsonPath& path, JsonCursor* cursor);
  absl::Status ReadPromptIds(const JsonPath& path, JsonCursor* cursor);
  // Checks the fields that depend on each other.
  absl::Status CheckTogether();
  void SetDefaults();

  SharedFields shared_;
  std::vector<Prompt> prompts_;
  bool has_prompt_ = false;
  std::optional<bool> add_special_;
  std::optional<int64_t> best_of_;
};

absl::Status CompletionParser::ReadField(absl::string_view name, JsonCursor* cursor) {
  const JsonPath path = {.key = name};
  CompletionShape& shape = shared_.shape();
  if (name == "prompt") return ReadPrompt(cursor);
  if (name == "echo") return ReadFlag(path, cursor, &shape.echo);
  if (name == "add_special_tokens") {
    return ReadFlag(path, cursor, &add_special_.emplace());
  }
  if (name == "max_tokens") {
    return ReadCount(path, cursor, 0, kMaxTokenCount, [this](int64_t value) {
      shared_.sampling().set_max_tokens(static_cast<uint32_t>(value));
    });
  }
  if (name == "best_of") {
    return ReadCount(path, cursor, 1, kMaxTokenCount, [this](int64_t value) { best_of_ = value; });
  }
  if (name == "logprobs") {
    return ReadCount(path, cursor, 0, kMaxAlternatives,
                     [&shape](int64_t value) { shape.logprobs = static_cast<int>(value); });
  }
  return shared_.Read(name, cursor);
}

absl::Status CompletionParser::ReadPrompt(JsonCursor* cursor) {
  has_prompt_ = true;
  const JsonPath path = {.key = "prompt"};
  switch (cursor->Peek()) {
    case Kind::kString: {
      std::string text;
      RETURN_IF_ERROR(cursor->ReadString(&text));
      prompts_.emplace_back(std::move(text));
      return absl::OkStatus();
    }
    case Kind::kArray:
      return ReadPromptList(path, cursor);
    default:
      return WrongValue(path, *cursor,
                        "a text, a list of texts, a list of token ids, or a list of such lists");
  }
}

absl::Status CompletionParser::ReadPromptList(const JsonPath& path, JsonCursor* cursor) {
  // The first element decides what the list is. A copy of the cursor looks at it.
  Kind kind = Kind::kNothing;
  JsonCursor ahead = *cursor;
  const absl::Status first = ahead.ReadArray([&](size_t) {
    kind = ahead.Peek();
    return absl::CancelledError();
  });
  if (first.ok()) return WrongValue(path, "an empty list", "at least one prompt");
  if (!absl::IsCancelled(first)) return first;
  if (kind == Kind::kNumber) return ReadPromptIds(path, cursor);
  if (kind != Kind::kString && kind != Kind::kArray) {
    return WrongValue({.parent = &path, .index = 0}, ahead,
                      "a text, a token id, or a list of token ids");
  }
  size_t count = 0;
  RETURN_IF_ERROR(cursor->ReadArray([&](size_t index) {
    if (++count > kMaxPrompts) return cursor->Skip();
    const JsonPath element = {.parent = &path, .index = index};
    if (kind == Kind::kArray) return ReadPromptIds(element, cursor);
    std::string text;
    RETURN_IF_ERROR(ReadText(element, cursor, std::numeric_limits<size_t>::max(), &text));
    prompts_.emplace_back(std::move(text));
    return absl::OkStatus();
  }));
  if (count <= kMaxPrompts) return absl::OkStatus();
  return BadParameter("prompt",
                      absl::StrCat("prompt has ", count, " prompts; it takes up to ", kMaxPrompts));
}

absl::Status CompletionParser::ReadPromptIds(const JsonPath& path, JsonCursor* cursor) {
  const size_t context = shared_.settings().context_tokens;
  const size_t max = context > 0 ? context : std::numeric_limits<size_t>::max();
  std::vector<TokenId> ids;
  size_t count = 0;
  RETURN_IF_ERROR(ReadTokenIds(path, cursor, max, &ids, &count));
  if (count == 0) return WrongValue(path, "an empty list", "at least one token id");
  if (count >= max) {
    const std::string name = path.ToString();
    return WithReason(
        BadParameter(name, absl::StrCat(name, " has ", count, " tokens; the model's context of ",
                                        context, " tokens must hold it and at least one more")),
        kContextLengthExceeded);
  }
  ids.shrink_to_fit();
  prompts_.emplace_back(std::move(ids));
  return absl::OkStatus();
}

absl::Status CompletionParser::CheckTogether() {
  const CompletionShape& shape = shared_.shape();
  if (!has_prompt_) {
    return BadParameter("prompt",
                        "prompt is missing; send a text, a list of texts, or lists of token ids");
  }
  const size_t answers = prompts_.size() * static_cast<size_t>(shape.n);
  if (answers > kMaxAnswersOfRequest) {
    return BadParameter(
        "n", absl::StrCat(prompts_.size(), " prompts with n ", shape.n, " make ", answers,
                          " answers; one request takes up to ", kMaxAnswersOfRequest));
  }
  if (best_of_ && *best_of_ != 1 && *best_of_ != shape.n) {
    return BadParameter("best_of", absl::StrCat("best_of is ", *best_of_, " and n is ", shape.n,
                                                "; choosing the best of several answers is not "
                                                "supported: leave best_of out"));
  }
  const v1::SamplingParams& sampling = shared_.sampling();
  if (sampling.has_max_tokens() && sampling.max_tokens() == 0 && !shape.echo) {
    return BadParameter("max_tokens", "max_tokens is 0; it takes 1 or more, and 0 only with echo");
  }
  return shared_.CheckTogether();
}

void CompletionParser::SetDefaults() {
  shared_.SetDefaults();
  v1::SamplingParams& to = shared_.sampling();
  CompletionShape& shape = shared_.shape();
  if (!to.has_max_tokens()) to.set_max_tokens(kDefaultMaxTokens);
  if (to.max_tokens() == 0) {
    shape.score_only = true;
    to.set_max_tokens(1);  // The core can't score a prompt without generating a token.
  }
  // The echoed prompt has logprobs too.
  if (shape.echo && shape.logprobs) {
    const int alternatives = std::max(*shape.logprobs, shape.prompt_logprobs.value_or(0));
    to.set_prompt_logprobs(static_cast<uint32_t>(alternatives));
  }
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseCompletionRequest(absl::string_view body,
                                                         const CompletionSettings& settings) {
  return CompletionParser(settings).Parse(body);
}

}  // namespace baton
