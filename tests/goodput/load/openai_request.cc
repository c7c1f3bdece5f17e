#include "tests/goodput/load/openai_request.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;

// Returns a text of one word for each id.
std::string Words(const v1::TokenIds& prompt) {
  static constexpr const char* kFirst[] = {"an",  "be", "car",  "do", "en", "for", "go", "in",
                                           "man", "of", "part", "re", "so", "the", "up", "we"};
  static constexpr const char* kSecond[] = {"",   "al", "ed", "er", "es", "ic", "ing", "ion",
                                            "is", "le", "ly", "on", "or", "s",  "t",   "y"};
  std::string text;
  for (const int32_t id : prompt.ids()) {
    const int32_t word = id % kOpenAiWords;
    absl::StrAppend(&text, text.empty() ? "" : " ", kFirst[word / 16], kSecond[word % 16]);
  }
  return text;
}

}  // namespace

std::string CompletionBody(const v1::GenerateRequest& request, absl::string_view model,
                           const OpenAiFeatures& features, bool answer_ids, bool chat) {
  const v1::SamplingParams& sampling = request.sampling();
  json fields = {{"model", std::string(model)},
                 {"max_tokens", sampling.max_tokens()},
                 {"temperature", sampling.temperature()},
                 // The API's seeds are signed. The router takes the same 64 bits.
                 {"seed", static_cast<int64_t>(sampling.seed())},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}}}};
  if (sampling.ignore_eos()) {
    fields["ignore_eos"] = true;
    fields["min_tokens"] = sampling.min_tokens();
  }
  if (answer_ids) fields["return_token_ids"] = true;
  if (!request.has_token_ids() || !features.prompt_ids) {
    const std::string text = request.has_token_ids() ? Words(request.token_ids()) : request.text();
    if (chat) {
      fields["messages"] = {{{"role", "user"}, {"content", text}}};
    } else {
      fields["prompt"] = text;
    }
  }
  std::string body = fields.dump(-1, ' ', false, json::error_handler_t::replace);
  if (!request.has_token_ids() || !features.prompt_ids) return body;
  // A long list of numbers is written by hand, because a JSON tree of it would take several times
  // as long.
  body.pop_back();
  absl::StrAppend(&body, ",\"prompt\":[", absl::StrJoin(request.token_ids().ids(), ","), "]}");
  return body;
}

}  // namespace baton
