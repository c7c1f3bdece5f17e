#include "router/http/shared_fields.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "baton/v1/sampling.pb.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"
#include "router/http/json_fields.h"
#include "router/http/refused_fields.h"

namespace baton {
namespace {

// The core takes as much too. A list of prompts copies these values for each prompt, so longer ones
// are refused here already.
constexpr size_t kMaxStops = 16, kMaxBadWordsOfBody = 64, kMaxStringBytes = 1000;
constexpr size_t kMaxStopTokenIds = 256, kMaxBiases = 1024, kMaxSaltBytes = 256;
constexpr int64_t kMaxAnswersPerPrompt = 64;

using JsonKind = JsonCursor::Kind;

template <typename Set>
absl::Status ReadReal(const JsonPath& path, JsonCursor* cursor, Set set) {
  float value = 0;
  RETURN_IF_ERROR(ReadFloat(path, cursor, &value));
  set(value);
  return absl::OkStatus();
}

}  // namespace

SharedFields::SharedFields(const CompletionSettings& settings, bool chat) : settings_(settings) {
  request_.shape.chat = chat;
}

absl::Status SharedFields::Read(absl::string_view name, JsonCursor* cursor) {
  bool known = false;
  RETURN_IF_ERROR(ReadSamplingField(name, cursor, &known));
  if (known) return absl::OkStatus();
  RETURN_IF_ERROR(ReadShapeField(name, cursor, &known));
  if (known) return absl::OkStatus();
  const JsonPath path = {.key = name};
  if (name == "model") return ReadText(path, cursor, kMaxModelNameBytes, &base_.model);
  if (name == "user") {
    std::string user;
    return ReadText(path, cursor, std::numeric_limits<size_t>::max(), &user);
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
  if (const RefusedField* const refused = FindRefusedField(name, request_.shape.chat)) {
    return ReadRefusedField(*refused, cursor);
  }
  return ReadUnknown(path.ToString(), cursor);
}

absl::Status SharedFields::ReadSamplingField(absl::string_view name, JsonCursor* cursor,
                                             bool* known) {
  *known = true;
  const JsonPath path = {.key = name};
  v1::SamplingParams& to = sampling();
  const auto real = [&](auto set) { return ReadReal(path, cursor, set); };
  const auto count = [&](int64_t min, auto set) {
    return ReadCount(path, cursor, min, kMaxTokenCount, set);
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

absl::Status SharedFields::ReadShapeField(absl::string_view name, JsonCursor* cursor, bool* known) {
  *known = true;
  const JsonPath path = {.key = name};
  if (name == "stream") return ReadFlag(path, cursor, &shape().stream);
  if (name == "stream_options") return ReadStreamOptions(path, cursor);
  if (name == "return_token_ids") return ReadFlag(path, cursor, &shape().return_token_ids);
  if (name == "skip_special_tokens") return ReadFlag(path, cursor, &base_.skip_special);
  if (name == "n") {
    return ReadCount(path, cursor, 1, kMaxAnswersPerPrompt,
                     [this](int64_t value) { shape().n = static_cast<int>(value); });
  }
  if (name == "prompt_logprobs") {
    return ReadCount(path, cursor, 0, kMaxAlternatives,
                     [this](int64_t value) { shape().prompt_logprobs = static_cast<int>(value); });
  }
  *known = false;
  return absl::OkStatus();
}

absl::Status SharedFields::ReadStop(const JsonPath& path, JsonCursor* cursor) {
  std::vector<std::string>& stop = shape().stop;
  if (cursor->Peek() == JsonKind::kString) {
    RETURN_IF_ERROR(ReadText(path, cursor, kMaxStringBytes, &stop.emplace_back()));
  } else if (cursor->Peek() == JsonKind::kArray) {
    RETURN_IF_ERROR(ReadTexts(path, cursor, kMaxStops, kMaxStringBytes, &stop));
  } else {
    return WrongValue(path, *cursor, "a string or a list of strings");
  }
  sampling().mutable_stop()->Assign(stop.begin(), stop.end());
  return absl::OkStatus();
}

absl::Status SharedFields::ReadStopTokenIds(const JsonPath& path, JsonCursor* cursor) {
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

absl::Status SharedFields::ReadLogitBias(const JsonPath& path, JsonCursor* cursor) {
  if (cursor->Peek() != JsonKind::kObject) {
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

absl::Status SharedFields::ReadStreamOptions(const JsonPath& path, JsonCursor* cursor) {
  if (cursor->Peek() != JsonKind::kObject) return WrongValue(path, *cursor, "an object");
  return cursor->ReadObject([&](absl::string_view key) {
    has_stream_options_ = true;  // An object without members asks for nothing.
    if (cursor->Peek() == JsonKind::kNull) return cursor->ReadNull();
    const JsonPath member = {.parent = &path, .key = key};
    if (key == "include_usage") return ReadFlag(member, cursor, &shape().include_usage);
    if (key == "continuous_usage_stats") {
      return ReadFlag(member, cursor, &shape().continuous_usage);
    }
    return ReadUnknown(member.ToString(), cursor);
  });
}

absl::Status SharedFields::ReadUnknown(const std::string& name, JsonCursor* cursor) {
  if (settings_.refuse_unknown_fields) {
    return BadParameter(name, absl::StrCat(name,
                                           " is not a field that this server knows, and it "
                                           "refuses such fields; leave it out"));
  }
  AddIgnoredField(name, &request_.ignored);
  return cursor->Skip();
}

absl::Status SharedFields::CheckTogether() const {
  const CompletionShape& shape = request_.shape;
  if (has_stream_options_ && !shape.stream) {
    return BadParameter("stream_options",
                        "stream_options is set, but stream is not true; leave one of them out");
  }
  if (shape.prompt_logprobs && shape.stream) {
    return BadParameter("prompt_logprobs",
                        absl::StrCat("prompt_logprobs is ", *shape.prompt_logprobs,
                                     " and stream is true; a stream can't have them",
                                     shape.chat ? "" : ": use echo and logprobs"));
  }
  return absl::OkStatus();
}

void SharedFields::SetDefaults() {
  v1::SamplingParams& to = sampling();
  if (!to.has_temperature() && !settings_.model_has_temperature) to.set_temperature(1);
  if (shape().n > 1) to.set_n(static_cast<uint32_t>(shape().n));
  if (shape().logprobs) to.set_logprobs(static_cast<uint32_t>(*shape().logprobs));
  if (shape().prompt_logprobs) {
    to.set_prompt_logprobs(static_cast<uint32_t>(*shape().prompt_logprobs));
  }
  if (!shape().include_usage) shape().continuous_usage = false;
}

}  // namespace baton
