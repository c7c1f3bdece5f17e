#include "router/http/completion_request.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "baton/v1/sampling.pb.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"
#include "router/http/json_cursor.h"
#include "router/http/json_fields.h"
#include "router/http/refused_fields.h"

namespace baton {
namespace {

// Each prompt has a copy of the other fields, so these are limited here already, to what the core
// takes.
constexpr size_t kMaxStops = 16, kMaxBadWordsOfBody = 64, kMaxStringBytes = 1000;
constexpr size_t kMaxStopTokenIds = 256, kMaxBiases = 1024, kMaxSaltBytes = 256;
constexpr int64_t kMaxAnswersPerPrompt = 64;
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxAlternatives = 20;
constexpr uint32_t kDefaultMaxTokens = 16;

using Kind = JsonCursor::Kind;
using Prompt = decltype(ClientRequest::prompt);

// Reads one request. The state that several fields decide together is here until all fields were
// read.
class CompletionParser {
 public:
  explicit CompletionParser(const CompletionSettings& settings) : settings_(settings) {}

  absl::StatusOr<CompletionRequest> Parse(absl::string_view body) {
    RETURN_IF_ERROR(ReadBody(body, [this](absl::string_view name, JsonCursor* cursor) {
      return ReadField(name, cursor);
    }));
    RETURN_IF_ERROR(CheckTogether());
    SetDefaults();
    for (Prompt& prompt : prompts_) {
      ClientRequest& request = request_.prompts.emplace_back(base_);
      // The options for text are not allowed beside ids.
      if (std::holds_alternative<std::string>(prompt)) {
        request.parse_special = true;
        request.add_special = add_special_;
      }
      request.prompt = std::move(prompt);
    }
    return std::move(request_);
  }

 private:
  absl::Status ReadField(absl::string_view name, JsonCursor* cursor);
  absl::Status ReadSamplingField(absl::string_view name, JsonCursor* cursor, bool* known);
  absl::Status ReadShapeField(absl::string_view name, JsonCursor* cursor, bool* known);
  absl::Status ReadPrompt(JsonCursor* cursor);
  absl::Status ReadPromptList(const JsonPath& path, JsonCursor* cursor);
  absl::Status ReadPromptIds(const JsonPath& path, JsonCursor* cursor);
  absl::Status ReadStop(const JsonPath& path, JsonCursor* cursor);
  absl::Status ReadStopTokenIds(const JsonPath& path, JsonCursor* cursor);
  absl::Status ReadLogitBias(const JsonPath& path, JsonCursor* cursor);
  absl::Status ReadStreamOptions(const JsonPath& path, JsonCursor* cursor);
  absl::Status ReadUnknown(const std::string& name, JsonCursor* cursor);
  // Checks the fields that depend on each other.
  absl::Status CheckTogether() const;
  void SetDefaults();

  // Reads a count and hands it to `set`, a setter of SamplingParams.
  template <typename Set>
  absl::Status ReadCount(const JsonPath& path, JsonCursor* cursor, int64_t min, int64_t max,
                         Set set) {
    int64_t value = 0;
    RETURN_IF_ERROR(ReadInteger(path, cursor, min, max, &value));
    set(value);
    return absl::OkStatus();
  }
  template <typename Set>
  absl::Status ReadReal(const JsonPath& path, JsonCursor* cursor, Set set) {
    float value = 0;
    RETURN_IF_ERROR(ReadFloat(path, cursor, &value));
    set(value);
    return absl::OkStatus();
  }

  v1::SamplingParams& sampling() { return base_.sampling; }
  CompletionShape& shape() { return request_.shape; }

  const CompletionSettings& settings_;
  CompletionRequest request_;
  ClientRequest base_;  // The fields that all prompts share.
  std::vector<Prompt> prompts_;
  bool has_prompt_ = false;
  bool has_stream_options_ = false;
  std::optional<bool> add_special_;
  std::optional<int64_t> best_of_;
};

absl::Status CompletionParser::ReadField(absl::string_view name, JsonCursor* cursor) {
  bool known = false;
  RETURN_IF_ERROR(ReadSamplingField(name, cursor, &known));
  if (known) return absl::OkStatus();
  RETURN_IF_ERROR(ReadShapeField(name, cursor, &known));
  if (known) return absl::OkStatus();
  const JsonPath path = {.key = name};
  if (name == "prompt") return ReadPrompt(cursor);
  if (name == "model") return ReadText(path, cursor, kMaxStringBytes, &base_.model);
  if (name == "user") {
    std::string user;
    return ReadText(path, cursor, std::numeric_limits<size_t>::max(), &user);
  }
  if (name == "add_special_tokens") {
    return ReadFlag(path, cursor, &add_special_.emplace());
  }
  if (name == "cache_salt") {
    RETURN_IF_ERROR(ReadText(path, cursor, kMaxSaltBytes, &base_.cache_salt));
    if (!base_.cache_salt.empty()) return absl::OkStatus();
    return WrongValue(path, "\"\"", "a string that is not empty, or null to share the cache");
  }
  if (name == "priority") {
    return ReadCount(path, cursor, std::numeric_limits<int64_t>::min(),
                     std::numeric_limits<int64_t>::max(), [this](int64_t value) {
                       if (value == 0) return;
                       request_.warnings.push_back(
                           absl::StrCat("priority is ", value, ", which has no effect yet"));
                     });
  }
  if (const RefusedField* const refused = FindRefusedField(name)) {
    return ReadRefusedField(*refused, cursor);
  }
  return ReadUnknown(path.ToString(), cursor);
}

absl::Status CompletionParser::ReadSamplingField(absl::string_view name, JsonCursor* cursor,
                                                 bool* known) {
  *known = true;
  const JsonPath path = {.key = name};
  v1::SamplingParams& to = sampling();
  const auto real = [&](auto set) { return ReadReal(path, cursor, set); };
  const auto count = [&](int64_t min, auto set) {
    return ReadCount(path, cursor, min, kMaxInt32, set);
  };
  if (name == "temperature") return real([&](float value) { to.set_temperature(value); });
  if (name == "top_p") return real([&](float value) { to.set_top_p(value); });
  if (name == "min_p") return real([&](float value) { to.set_min_p(value); });
  if (name == "repetition_penalty") {
    return real([&](float value) { to.set_repetition_penalty(value); });
  }
  if (name == "presence_penalty") {
    return real([&](float value) { to.set_presence_penalty(value); });
  }
  if (name == "frequency_penalty") {
    return real([&](float value) { to.set_frequency_penalty(value); });
  }
  if (name == "top_k") {
    // -1 and 0 both mean all tokens.
    return count(-1, [&](int64_t value) {
      to.set_top_k(static_cast<uint32_t>(std::max<int64_t>(value, 0)));
    });
  }
  if (name == "max_tokens") {
    return count(0, [&](int64_t value) { to.set_max_tokens(static_cast<uint32_t>(value)); });
  }
  if (name == "min_tokens") {
    return count(0, [&](int64_t value) { to.set_min_tokens(static_cast<uint32_t>(value)); });
  }
  if (name == "seed") {
    uint64_t seed = 0;
    RETURN_IF_ERROR(ReadSeed(path, cursor, &seed));
    to.set_seed(seed);
    return absl::OkStatus();
  }
  if (name == "ignore_eos") {
    bool value = false;
    RETURN_IF_ERROR(ReadFlag(path, cursor, &value));
    to.set_ignore_eos(value);
    return absl::OkStatus();
  }
  if (name == "bad_words") {
    std::vector<std::string> words;
    RETURN_IF_ERROR(ReadTexts(path, cursor, kMaxBadWordsOfBody, kMaxStringBytes, &words));
    to.mutable_bad_words()->Assign(words.begin(), words.end());
    return absl::OkStatus();
  }
  if (name == "stop") return ReadStop(path, cursor);
  if (name == "stop_token_ids") return ReadStopTokenIds(path, cursor);
  if (name == "logit_bias") return ReadLogitBias(path, cursor);
  *known = false;
  return absl::OkStatus();
}

absl::Status CompletionParser::ReadShapeField(absl::string_view name, JsonCursor* cursor,
                                              bool* known) {
  *known = true;
  const JsonPath path = {.key = name};
  if (name == "stream") return ReadFlag(path, cursor, &shape().stream);
  if (name == "stream_options") return ReadStreamOptions(path, cursor);
  if (name == "echo") return ReadFlag(path, cursor, &shape().echo);
  if (name == "return_token_ids") return ReadFlag(path, cursor, &shape().return_token_ids);
  if (name == "skip_special_tokens") return ReadFlag(path, cursor, &base_.skip_special);
  if (name == "n") {
    return ReadCount(path, cursor, 1, kMaxAnswersPerPrompt,
                     [this](int64_t value) { shape().n = static_cast<int>(value); });
  }
  if (name == "best_of") {
    return ReadCount(path, cursor, 1, kMaxInt32, [this](int64_t value) { best_of_ = value; });
  }
  if (name == "logprobs") {
    return ReadCount(path, cursor, 0, kMaxAlternatives,
                     [this](int64_t value) { shape().logprobs = static_cast<int>(value); });
  }
  if (name == "prompt_logprobs") {
    return ReadCount(path, cursor, 0, kMaxAlternatives,
                     [this](int64_t value) { shape().prompt_logprobs = static_cast<int>(value); });
  }
  *known = false;
  return absl::OkStatus();
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
  const size_t context = settings_.context_tokens;
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

absl::Status CompletionParser::ReadStop(const JsonPath& path, JsonCursor* cursor) {
  std::vector<std::string>& stop = shape().stop;
  if (cursor->Peek() == Kind::kString) {
    RETURN_IF_ERROR(ReadText(path, cursor, kMaxStringBytes, &stop.emplace_back()));
  } else if (cursor->Peek() == Kind::kArray) {
    RETURN_IF_ERROR(ReadTexts(path, cursor, kMaxStops, kMaxStringBytes, &stop));
  } else {
    return WrongValue(path, *cursor, "a string or a list of strings");
  }
  sampling().mutable_stop()->Assign(stop.begin(), stop.end());
  return absl::OkStatus();
}

absl::Status CompletionParser::ReadStopTokenIds(const JsonPath& path, JsonCursor* cursor) {
  std::vector<TokenId>& ids = shape().stop_token_ids;
  size_t count = 0;
  RETURN_IF_ERROR(ReadTokenIds(path, cursor, kMaxStopTokenIds, &ids, &count));
  if (count > kMaxStopTokenIds) {
    return BadParameter("stop_token_ids", absl::StrCat("stop_token_ids has ", count,
                                                       " ids; it takes up to ", kMaxStopTokenIds));
  }
  sampling().mutable_stop_token_ids()->Assign(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status CompletionParser::ReadLogitBias(const JsonPath& path, JsonCursor* cursor) {
  if (cursor->Peek() != Kind::kObject) {
    return WrongValue(path, *cursor, "an object from token ids to numbers");
  }
  auto& biases = *sampling().mutable_logit_bias();
  return cursor->ReadObject([&](absl::string_view key) {
    const JsonPath member = {.parent = &path, .key = key};
    TokenId id = 0;
    // SimpleAtoi() would also take blanks and a plus sign.
    const bool digits = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char byte) {
      return absl::ascii_isdigit(byte);
    });
    if (!digits || !absl::SimpleAtoi(key, &id)) {
      return BadParameter("logit_bias",
                          absl::StrCat("logit_bias has the key \"",
                                       member.key.empty() ? "" : JsonPath{.key = key}.ToString(),
                                       "\"; its keys are token ids"));
    }
    float bias = 0;
    RETURN_IF_ERROR(ReadFloat(member, cursor, &bias));
    if (biases.count(id) > 0) {
      return BadParameter(member.ToString(), absl::StrCat(member.ToString(), " occurs twice"));
    }
    biases[id] = bias;
    if (biases.size() <= kMaxBiases) return absl::OkStatus();
    return BadParameter("logit_bias",
                        absl::StrCat("logit_bias has more than ", kMaxBiases, " tokens"));
  });
}

absl::Status CompletionParser::ReadStreamOptions(const JsonPath& path, JsonCursor* cursor) {
  if (cursor->Peek() != Kind::kObject) return WrongValue(path, *cursor, "an object");
  return cursor->ReadObject([&](absl::string_view key) {
    has_stream_options_ = true;  // An object without members asks for nothing.
    if (cursor->Peek() == Kind::kNull) return cursor->ReadNull();
    const JsonPath member = {.parent = &path, .key = key};
    if (key == "include_usage") return ReadFlag(member, cursor, &shape().include_usage);
    if (key == "continuous_usage_stats") {
      return ReadFlag(member, cursor, &shape().continuous_usage);
    }
    return ReadUnknown(member.ToString(), cursor);
  });
}

absl::Status CompletionParser::ReadUnknown(const std::string& name, JsonCursor* cursor) {
  if (settings_.refuse_unknown_fields) {
    return BadParameter(name, absl::StrCat(name,
                                           " is not a field that this server knows, and it "
                                           "refuses such fields; leave it out"));
  }
  AddIgnoredField(name, &request_.ignored);
  return cursor->Skip();
}

absl::Status CompletionParser::CheckTogether() const {
  const CompletionShape& shape = request_.shape;
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
  if (has_stream_options_ && !shape.stream) {
    return BadParameter("stream_options",
                        "stream_options is set, but stream is not true; leave one of them out");
  }
  if (shape.prompt_logprobs && shape.stream) {
    return BadParameter("prompt_logprobs",
                        absl::StrCat("prompt_logprobs is ", *shape.prompt_logprobs,
                                     " and stream is true; a stream can't have them: use echo "
                                     "and logprobs"));
  }
  if (base_.sampling.has_max_tokens() && base_.sampling.max_tokens() == 0 && !shape.echo) {
    return BadParameter("max_tokens", "max_tokens is 0; it takes 1 or more, and 0 only with echo");
  }
  return absl::OkStatus();
}

void CompletionParser::SetDefaults() {
  v1::SamplingParams& to = sampling();
  if (!to.has_max_tokens()) to.set_max_tokens(kDefaultMaxTokens);
  if (to.max_tokens() == 0) {
    shape().score_only = true;
    to.set_max_tokens(1);  // The core can't score a prompt without generating a token.
  }
  if (!to.has_temperature() && !settings_.model_has_temperature) to.set_temperature(1);
  if (shape().n > 1) to.set_n(static_cast<uint32_t>(shape().n));
  if (shape().logprobs) to.set_logprobs(static_cast<uint32_t>(*shape().logprobs));
  std::optional<int> prompt_logprobs = shape().prompt_logprobs;
  // The echoed prompt has logprobs too.
  if (shape().echo && shape().logprobs) {
    prompt_logprobs = std::max(*shape().logprobs, prompt_logprobs.value_or(0));
  }
  if (prompt_logprobs) to.set_prompt_logprobs(static_cast<uint32_t>(*prompt_logprobs));
  if (!shape().include_usage) shape().continuous_usage = false;
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseCompletionRequest(absl::string_view body,
                                                         const CompletionSettings& settings) {
  return CompletionParser(settings).Parse(body);
}

}  // namespace baton
