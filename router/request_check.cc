#include "router/request_check.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"

namespace baton {
namespace {

// A seed that nobody asked for has 53 bits: what JSON readers keep of a number, so that it can be
// asked for again.
constexpr int kSeedShift = 11;

constexpr size_t kMaxIdBytes = 128;
constexpr int kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1000;

absl::StatusOr<std::vector<TokenId>> PromptTokens(const v1::GenerateRequest& request,
                                                  const ServedModel& model,
                                                  const RequestLimits& limits) {
  std::vector<TokenId> tokens;
  if (request.prompt_case() == v1::GenerateRequest::kText) {
    if (request.text().empty()) return absl::InvalidArgumentError("text is empty");
    if (absl::Status s = CheckTextSize("text", request.text(), limits); !s.ok()) return s;
    absl::StatusOr<std::vector<TokenId>> encoded = model.tokenizer->Encode(request.text());
    if (!encoded.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("text: ", encoded.status().message()));
    }
    tokens = *std::move(encoded);
  } else if (request.prompt_case() == v1::GenerateRequest::kTokenIds) {
    tokens.assign(request.token_ids().ids().begin(), request.token_ids().ids().end());
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= 0 && tokens[i] < model.config.vocab) continue;
      return absl::InvalidArgumentError(absl::StrCat("token_ids[", i, "] is ", tokens[i],
                                                     "; the vocabulary has ids 0 to ",
                                                     model.config.vocab - 1));
    }
  } else {
    return absl::InvalidArgumentError("the request has neither text nor token_ids");
  }
  if (tokens.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  // Before the sum with max_tokens, so that no sum overflows.
  if (tokens.size() >= static_cast<size_t>(model.config.context)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has ", tokens.size(), " tokens; the model's context of ",
                     model.config.context, " tokens must hold it and at least one more"));
  }
  return tokens;
}

absl::Status CheckStops(const v1::SamplingParams& params) {
  if (params.stop_size() > kMaxStops) {
    return absl::InvalidArgumentError(
        absl::StrCat("stop has ", params.stop_size(), " strings; at most ", kMaxStops));
  }
  for (int i = 0; i < params.stop_size(); ++i) {
    if (!params.stop(i).empty() && params.stop(i).size() <= kMaxStopBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("stop[", i, "] has ", params.stop(i).size(),
                                                   " bytes; it takes 1 to ", kMaxStopBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModelName(absl::string_view name, const ServedModel& model) {
  if (name.empty() || name == model.name) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("model '", absl::CHexEscape(name.substr(0, 200)),
                                          "' is not served here; this router serves '", model.name,
                                          "'"));
}

absl::Status CheckTextSize(absl::string_view field, absl::string_view text,
                           const RequestLimits& limits) {
  if (text.size() <= limits.text_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " has ", text.size(), " bytes; this router takes up to ", limits.text_bytes));
}

absl::StatusOr<CheckedRequest> CheckRequest(const v1::GenerateRequest& request,
                                            const ServedModel& model, const RequestLimits& limits,
                                            absl::Time arrival, absl::Time deadline) {
  CheckedRequest checked;
  checked.arrival = arrival;
  checked.deadline = deadline;
  if (request.request_id().size() > kMaxIdBytes) {
    return absl::InvalidArgumentError(absl::StrCat("request_id has ", request.request_id().size(),
                                                   " bytes; at most ", kMaxIdBytes));
  }
  checked.request_id = request.request_id().empty()
                           ? absl::StrCat("r", absl::Hex(RandomU64(), absl::kZeroPad16))
                           : request.request_id();
  if (absl::Status s = CheckModelName(request.model(), model); !s.ok()) return s;
  if (absl::Status s = CheckStops(request.sampling()); !s.ok()) return s;
  checked.stop.assign(request.sampling().stop().begin(), request.sampling().stop().end());

  const GenerationDefaults& generation = model.config.generation;
  const SamplingOptions defaults = {.temperature = generation.temperature,
                                    .top_p = generation.top_p,
                                    .top_k = generation.top_k,
                                    .min_p = generation.min_p,
                                    .seed = RandomU64() >> kSeedShift,
                                    .stop_tokens = generation.end_tokens};
  absl::StatusOr<SamplingOptions> sampling = SamplingFromProto(request.sampling(), defaults);
  if (!sampling.ok()) return sampling.status();
  for (const TokenId id : request.sampling().stop_token_ids()) {
    if (id >= 0 && id < model.config.vocab) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "stop_token_ids has ", id, "; the vocabulary has ids 0 to ", model.config.vocab - 1));
  }
  checked.sampling = *std::move(sampling);

  absl::StatusOr<std::vector<TokenId>> prompt = PromptTokens(request, model, limits);
  if (!prompt.ok()) return prompt.status();
  checked.prompt = *std::move(prompt);
  const int64_t sum = static_cast<int64_t>(checked.prompt.size()) + checked.sampling.max_tokens;
  if (sum > model.config.context) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prompt of ", checked.prompt.size(), " tokens and max_tokens ", checked.sampling.max_tokens,
        " make ", sum, "; the model's context is ", model.config.context, " tokens"));
  }
  return checked;
}

}  // namespace baton
