#include "router/door/request_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error_details.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/rpc/limits.h"

namespace baton {
namespace {

// A seed that the router makes up has 64 - 11 = 53 bits. JSON readers keep a number of 53 bits
// exactly, so a client can send the seed again.
constexpr int kSeedShift = 11;

constexpr size_t kMaxIdBytes = 128;
constexpr int kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1000;
constexpr int kMaxBadWords = 64;
constexpr uint32_t kMaxAnswers = 64;
constexpr size_t kMaxBadWordBytes = 1000;

absl::Status TooLong(absl::string_view parameter, const std::string& message) {
  return WithReason(BadParameter(parameter, message), kContextLengthExceeded);
}

// Turns the text of a prompt into tokens. `parameter` is the field that has it, and `name` its name
// for people.
absl::StatusOr<std::vector<TokenId>> Encoded(absl::string_view text, EncodeOptions options,
                                             const ServedModel& model, absl::string_view parameter,
                                             absl::string_view name) {
  options.max_tokens = static_cast<size_t>(model.config.context - 1);
  absl::StatusOr<std::vector<TokenId>> encoded = model.tokenizer->Encode(text, std::move(options));
  if (absl::IsOutOfRange(encoded.status())) {
    return TooLong(parameter, absl::StrCat(name, ": ", encoded.status().message(),
                                           "; the model's context of ", model.config.context,
                                           " tokens must hold it and at least one more"));
  }
  if (!encoded.ok() && !absl::IsInvalidArgument(encoded.status())) return encoded.status();
  if (!encoded.ok()) {
    return BadParameter(parameter, absl::StrCat(name, ": ", encoded.status().message()));
  }
  // Some published folders have a tokenizer.json with more tokens than the model.
  for (const TokenId id : *encoded) {
    if (id < model.config.vocab) continue;
    return BadParameter(
        parameter,
        absl::StrCat(name, ": it has the token \"",
                     absl::Utf8SafeCEscape(model.tokenizer->TokenText(id)), "\" with id ", id,
                     "; the model's vocabulary has ids 0 to ", model.config.vocab - 1));
  }
  return encoded;
}

absl::StatusOr<std::vector<TokenId>> TokensOfText(const std::string& text,
                                                  const ClientRequest& request,
                                                  const ServedModel& model,
                                                  const RequestLimits& limits,
                                                  std::function<absl::Status()> interrupted) {
  if (text.empty()) return BadParameter("prompt", "text is empty");
  if (const absl::Status size = CheckTextSize("text", text, limits); !size.ok()) {
    return WithParameter(size, "prompt");
  }
  return Encoded(text,
                 {.parse_special = request.parse_special,
                  .add_special = request.add_special.value_or(true),
                  .interrupted = std::move(interrupted)},
                 model, "prompt", "text");
}

absl::StatusOr<std::vector<TokenId>> TokensOfChat(const Chat& chat, const ClientRequest& request,
                                                  const ServedModel& model,
                                                  const RequestLimits& limits,
                                                  std::function<absl::Status()> interrupted) {
  if (request.parse_special || request.add_special.value_or(false)) {
    const absl::string_view option = request.parse_special ? "parse_special" : "add_special";
    return BadParameter(option,
                        absl::StrCat(option,
                                     " is set, but the prompt is a chat, whose special tokens the "
                                     "model's chat template writes"));
  }
  ASSIGN_OR_RETURN(const ChatRenderer::Prompt prompt, RenderChat(chat, model, limits));
  if (prompt.broken_arguments > 0) {
    Log(Severity::kWarning, "tool_arguments_dropped",
        {{kRequestId, request.request_id},
         {"calls", prompt.broken_arguments},
         {"because", "their arguments are not the text of a JSON object"}});
  }
  return Encoded(prompt.text,
                 {.add_special = false,
                  .special_ranges = prompt.from_template,
                  .interrupted = std::move(interrupted)},
                 model, "messages", "messages");
}

absl::StatusOr<std::vector<TokenId>> TokensOfIds(const std::vector<TokenId>& ids,
                                                 const ClientRequest& request,
                                                 const ServedModel& model) {
  if (request.parse_special || request.add_special) {
    const absl::string_view option = request.parse_special ? "parse_special" : "add_special";
    return BadParameter(
        option,
        absl::StrCat(option,
                     " is set, but the prompt is token_ids; this option works only with text"));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < model.config.vocab) continue;
    return BadParameter(
        "prompt", absl::StrCat("token_ids[", i, "] is ", ids[i], "; the vocabulary has ids 0 to ",
                               model.config.vocab - 1));
  }
  return ids;
}

absl::StatusOr<std::vector<TokenId>> PromptTokens(const ClientRequest& request,
                                                  const ServedModel& model,
                                                  const RequestLimits& limits,
                                                  std::function<absl::Status()> interrupted) {
  std::vector<TokenId> tokens;
  if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    ASSIGN_OR_RETURN(tokens, TokensOfText(*text, request, model, limits, std::move(interrupted)));
  } else if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt)) {
    ASSIGN_OR_RETURN(tokens, TokensOfIds(*ids, request, model));
  } else if (const auto* chat = std::get_if<Chat>(&request.prompt)) {
    ASSIGN_OR_RETURN(tokens, TokensOfChat(*chat, request, model, limits, std::move(interrupted)));
  } else {
    return BadParameter("prompt", "the request has neither text, token_ids nor chat");
  }
  if (tokens.empty()) return BadParameter("prompt", "the prompt has no tokens");
  // Prevents an overflow when max_tokens is added to the length of the prompt later.
  if (tokens.size() >= static_cast<size_t>(model.config.context)) {
    return TooLong(
        "prompt", absl::StrCat("the prompt has ", tokens.size(), " tokens; the model's context of ",
                               model.config.context, " tokens must hold it and at least one more"));
  }
  return tokens;
}

using Strings = google::protobuf::RepeatedPtrField<std::string>;

absl::Status CheckStrings(absl::string_view field, const Strings& strings, int max,
                          size_t max_bytes) {
  if (strings.size() > max) {
    return BadParameter(field,
                        absl::StrCat(field, " has ", strings.size(), " strings; at most ", max));
  }
  for (int i = 0; i < strings.size(); ++i) {
    if (!strings[i].empty() && strings[i].size() <= max_bytes) continue;
    return BadParameter(field, absl::StrCat(field, "[", i, "] has ", strings[i].size(),
                                            " bytes; it takes 1 to ", max_bytes));
  }
  return absl::OkStatus();
}

// Makes the stop strings that are a special token's text stop tokens too: special tokens give no
// text, so the string alone would never match.
void AddStopTokens(const std::vector<std::string>& stop, const ServedModel& model,
                   std::vector<TokenId>* stop_tokens) {
  for (const std::string& text : stop) {
    const std::optional<TokenId> id = model.tokenizer->TokenToId(text);
    if (!id || *id >= model.config.vocab || !model.tokenizer->IsSpecial(*id)) continue;
    if (std::find(stop_tokens->begin(), stop_tokens->end(), *id) == stop_tokens->end()) {
      stop_tokens->push_back(*id);
    }
  }
}

// Returns the token sequences that stand for a word at the start of a text and behind a blank, and
// behind text that may have other tokens before it: a newline, a bracket, a character without a
// token of its own, and a letter if the word does not begin with one. Special tokens that the word
// spells are in it both as tokens and as text.
absl::StatusOr<std::vector<std::vector<TokenId>>> SequencesOf(const std::string& word,
                                                              const Tokenizer& tokenizer) {
  const auto first = static_cast<unsigned char>(word[0]);
  std::vector<std::string> texts_before = {"", "a\n", "a(", "a\U0010FFFD"};
  texts_before.push_back(absl::ascii_isspace(first) ? "a " : " ");
  if (!absl::ascii_isalnum(first) && first < 0x80) texts_before.push_back("a");
  std::vector<std::vector<TokenId>> sequences;
  for (const std::string& before : texts_before) {
    for (const bool parse_special : {false, true}) {
      const EncodeOptions options = {.parse_special = parse_special, .add_special = false};
      ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer.Encode(before + word, options));
      if (!before.empty() && before != " ") {
        // The word's tokens begin where those of the text before it end, or earlier if they merge.
        ASSIGN_OR_RETURN(const auto ids_before, tokenizer.Encode(before, options));
        const auto begin =
            std::mismatch(ids.begin(), ids.end(), ids_before.begin(), ids_before.end()).first;
        if (begin == ids.begin() || begin == ids.end()) continue;
        ids.erase(ids.begin(), begin);
      }
      sequences.push_back(std::move(ids));
    }
  }
  // A sequence that ends with another one is banned by that one.
  std::stable_sort(sequences.begin(), sequences.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  std::vector<std::vector<TokenId>> needed;
  for (std::vector<TokenId>& ids : sequences) {
    const bool banned = std::any_of(needed.begin(), needed.end(), [&](const auto& other) {
      return std::equal(other.rbegin(), other.rend(), ids.rbegin());
    });
    if (!banned) needed.push_back(std::move(ids));
  }
  return needed;
}

absl::Status AddBadWords(const Strings& words, const ServedModel& model,
                         std::vector<std::vector<TokenId>>* sequences) {
  for (int i = 0; i < words.size(); ++i) {
    auto of_word = SequencesOf(words[i], *model.tokenizer);
    if (!of_word.ok()) {
      return BadParameter("bad_words",
                          absl::StrCat("bad_words[", i, "]: ", of_word.status().message()));
    }
    for (std::vector<TokenId>& ids : *of_word) {
      if (ids.empty() || ids.size() > SamplingOptions::kMaxBadWordTokens) {
        return BadParameter("bad_words", absl::StrCat("bad_words[", i, "] is ", ids.size(),
                                                      " tokens; it takes 1 to ",
                                                      SamplingOptions::kMaxBadWordTokens));
      }
      const bool sampled =
          std::all_of(ids.begin(), ids.end(), [&](TokenId id) { return id < model.config.vocab; });
      if (sampled && std::find(sequences->begin(), sequences->end(), ids) == sequences->end()) {
        sequences->push_back(std::move(ids));
      }
    }
  }
  if (sequences->size() > SamplingOptions::kMaxBadWords) {
    return BadParameter(
        "bad_words",
        absl::StrCat("bad_words, bad_word_ids and those of the model are ", sequences->size(),
                     " sequences of tokens together; at most ", SamplingOptions::kMaxBadWords));
  }
  return absl::OkStatus();
}

// Sets the lengths that the request leaves open to those of generation_config.json. max_length and
// min_length there include the prompt, as in transformers.
absl::Status SetLengthDefaults(const v1::SamplingParams& params,
                               const GenerationDefaults& generation, CheckedRequest* checked) {
  const auto prompt = static_cast<int>(checked->prompt.size());
  SamplingOptions& sampling = checked->sampling;
  if (!params.has_min_tokens() && !generation.min_new_tokens) {
    sampling.min_tokens = std::max(0, generation.min_length - prompt);
    if (params.has_max_tokens()) {
      sampling.min_tokens = std::min(sampling.min_tokens, sampling.max_tokens);
    }
  }
  if (params.has_max_tokens()) return absl::OkStatus();
  if (generation.max_new_tokens) {
    checked->default_max_tokens = *generation.max_new_tokens;
    checked->default_name = absl::StrCat("max_new_tokens ", *generation.max_new_tokens);
  } else if (generation.max_length) {
    if (prompt >= *generation.max_length) {
      return TooLong(
          "prompt",
          absl::StrCat("prompt of ", prompt,
                       " tokens; generation_config.json of the model has max_length ",
                       *generation.max_length, ", which includes the prompt: give max_tokens"));
    }
    checked->default_max_tokens = *generation.max_length - prompt;
    checked->default_name = absl::StrCat("max_length ", *generation.max_length);
  }
  if (checked->default_max_tokens) {
    checked->default_name += " of generation_config.json";
    if (params.has_min_tokens() && sampling.min_tokens > *checked->default_max_tokens) {
      return BadParameter("min_tokens", absl::StrCat("min_tokens is ", sampling.min_tokens,
                                                     "; the model's limit is ",
                                                     checked->default_name, ": give max_tokens"));
    }
    sampling.min_tokens = std::min(sampling.min_tokens, *checked->default_max_tokens);
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const SamplingOptions& sampling, int vocab) {
  const auto check = [vocab](absl::string_view field, TokenId id) {
    if (id >= 0 && id < vocab) return absl::OkStatus();
    return BadParameter(
        field, absl::StrCat(field, " has ", id, "; the vocabulary has ids 0 to ", vocab - 1));
  };
  for (const TokenId id : sampling.stop_tokens) {
    RETURN_IF_ERROR(check("stop_token_ids", id));
  }
  for (const auto& [id, bias] : sampling.logit_bias) {
    RETURN_IF_ERROR(check("logit_bias", id));
  }
  for (const std::vector<TokenId>& word : sampling.bad_words) {
    for (const TokenId id : word) {
      RETURN_IF_ERROR(check("bad_word_ids", id));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModelName(absl::string_view name, const ServedModel& model) {
  if (name.empty() || name == model.name) return absl::OkStatus();
  absl::Status status = absl::NotFoundError(
      absl::StrCat("model '", absl::CHexEscape(name.substr(0, 200)),
                   "' is not served here; this router serves '", model.name, "'"));
  return WithReason(WithParameter(std::move(status), "model"), kModelNotFound);
}

absl::StatusOr<ChatRenderer::Prompt> RenderChat(const Chat& chat, const ServedModel& model,
                                                const RequestLimits& limits) {
  const auto check = [&](size_t bytes) {
    if (bytes <= limits.text_bytes) return absl::OkStatus();
    return BadParameter("messages", absl::StrCat("the messages have ", bytes,
                                                 " bytes of text; this "
                                                 "router takes up to ",
                                                 limits.text_bytes));
  };
  RETURN_IF_ERROR(check(TextBytes(chat)));
  if (model.chat == nullptr) return BadParameter("messages", "the model has no chat template");
  ASSIGN_OR_RETURN(ChatRenderer::Prompt prompt,
                   model.chat->Render(chat, {absl::Now(), absl::LocalTimeZone()}));
  RETURN_IF_ERROR(check(prompt.text.size()));
  return prompt;
}

absl::Status CheckTextSize(absl::string_view field, absl::string_view text,
                           const RequestLimits& limits) {
  if (text.size() <= limits.text_bytes) return absl::OkStatus();
  return BadParameter(field, absl::StrCat(field, " has ", text.size(),
                                          " bytes; this router takes up to ", limits.text_bytes));
}

std::string NewRequestId() { return absl::StrCat("r", absl::Hex(RandomU64(), absl::kZeroPad16)); }

int AnswersWanted(const ClientRequest& request) {
  const uint32_t n = request.sampling.has_n() ? request.sampling.n() : 1;
  return n >= 1 && n <= kMaxAnswers ? static_cast<int>(n) : 1;
}

absl::StatusOr<CheckedRequest> CheckRequest(const ClientRequest& request, const ServedModel& model,
                                            const RequestLimits& limits, absl::Time arrival,
                                            absl::Time deadline,
                                            std::function<absl::Status()> interrupted) {
  CheckedRequest checked;
  checked.arrival = arrival;
  checked.deadline = deadline;
  if (request.request_id.size() > kMaxIdBytes) {
    return BadParameter("request_id", absl::StrCat("request_id has ", request.request_id.size(),
                                                   " bytes; at most ", kMaxIdBytes));
  }
  checked.request_id = request.request_id.empty() ? NewRequestId() : request.request_id;
  RETURN_IF_ERROR(CheckModelName(request.model, model));
  const v1::SamplingParams& params = request.sampling;
  for (const absl::Status& s :
       {CheckStrings("stop", params.stop(), kMaxStops, kMaxStopBytes),
        CheckStrings("bad_words", params.bad_words(), kMaxBadWords, kMaxBadWordBytes)}) {
    RETURN_IF_ERROR(s);
  }
  checked.stop.assign(params.stop().begin(), params.stop().end());
  if (checked.stop.empty()) checked.stop = model.config.generation.stop_strings;
  checked.mode = request.mode;
  if (request.cache_salt.size() > kMaxCacheSaltBytes) {
    return BadParameter("cache_salt", absl::StrCat("cache_salt has ", request.cache_salt.size(),
                                                   " bytes; at most ", kMaxCacheSaltBytes));
  }
  checked.cache_salt = request.cache_salt;
  checked.prefix_cache = request.prefix_cache;
  checked.skip_special = request.skip_special;
  ASSIGN_OR_RETURN(const LatencyTargets slo, TargetsFromMs(request.ttft_ms, request.tpot_ms));
  checked.slo = slo;

  const GenerationDefaults& generation = model.config.generation;
  const SamplingOptions defaults = {.temperature = generation.temperature,
                                    .top_p = generation.top_p,
                                    .top_k = generation.top_k,
                                    .min_p = generation.min_p,
                                    .seed = RandomU64() >> kSeedShift,
                                    .min_tokens = generation.min_new_tokens.value_or(0),
                                    .stop_tokens = generation.end_tokens,
                                    .repetition_penalty = generation.repetition_penalty,
                                    .bad_words = generation.bad_words};
  ASSIGN_OR_RETURN(SamplingOptions sampling, SamplingFromProto(params, defaults));
  RETURN_IF_ERROR(CheckIds(sampling, model.config.vocab));
  AddStopTokens(checked.stop, model, &sampling.stop_tokens);
  RETURN_IF_ERROR(AddBadWords(params.bad_words(), model, &sampling.bad_words));
  checked.sampling = std::move(sampling);
  if (params.has_n()) {
    if (params.n() < 1 || params.n() > kMaxAnswers) {
      return BadParameter("n", absl::StrCat("n is ", params.n(), "; it takes 1 to ", kMaxAnswers));
    }
    checked.answers = static_cast<int>(params.n());
  }

  ASSIGN_OR_RETURN(std::vector<TokenId> prompt,
                   PromptTokens(request, model, limits, std::move(interrupted)));
  checked.prompt = std::move(prompt);
  checked.prompt.shrink_to_fit();  // It stays as long as the request, and may have grown in steps.
  RETURN_IF_ERROR(SetLengthDefaults(params, generation, &checked));
  const int64_t sum = static_cast<int64_t>(checked.prompt.size()) + checked.sampling.max_tokens;
  if (sum > model.config.context) {
    return TooLong("max_tokens",
                   absl::StrCat("prompt of ", checked.prompt.size(), " tokens and max_tokens ",
                                checked.sampling.max_tokens, " make ", sum,
                                "; the model's context is ", model.config.context, " tokens"));
  }
  return checked;
}

}  // namespace baton
