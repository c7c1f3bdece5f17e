#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/error_details.h"
#include "common/base/json_value.h"
#include "router/http/completion_request.h"
#include "router/http/ignored_fields.h"
#include "router/http/text_messages.h"

namespace baton {
namespace {

// What another parser says of a text. It can't say anything if a number is beyond a double, which
// is valid JSON, but no number for that parser.
class Acceptor : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(std::string&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    beyond_double_ |= error.id == kNumberOverflow;
    return false;
  }
  bool beyond_double() const { return beyond_double_; }

 private:
  bool beyond_double_ = false;
};

void CheckRefusal(const absl::Status& status) {
  BATON_CHECK(absl::IsInvalidArgument(status) && !status.message().empty()) << status;
  BATON_CHECK(IsUtf8(status.message()));
  // A body may quote at most parts of itself, so a message stays short.
  BATON_CHECK(status.message().size() < 2000) << status.message().size();
}

void CheckIgnored(const IgnoredFields& ignored) {
  const std::string header = IgnoredFieldsHeader(ignored);
  BATON_CHECK(header.size() <= 1024 && header.empty() == (ignored.count == 0)) << header;
  BATON_CHECK(std::all_of(header.begin(), header.end(), [](char c) { return c > 32 && c < 127; }));
}

void CheckRequest(const CompletionRequest& request) {
  const size_t prompts = request.prompts.size();
  BATON_CHECK(prompts > 0 && prompts <= kMaxPrompts) << prompts;
  BATON_CHECK(prompts * static_cast<size_t>(request.shape.n) <= kMaxAnswersOfRequest);
  for (const ClientRequest& client : request.prompts) {
    if (const auto* const text = std::get_if<std::string>(&client.prompt)) {
      BATON_CHECK(IsUtf8(*text));
    } else {
      for (const TokenId id : std::get<std::vector<TokenId>>(client.prompt)) BATON_CHECK(id >= 0);
    }
    BATON_CHECK(client.sampling.max_tokens() > 0 && client.sampling.stop_size() <= 16);
    for (const std::string& stop : client.sampling.stop()) BATON_CHECK(IsUtf8(stop));
  }
}

}  // namespace
}  // namespace baton

// The first byte of the input holds flags. The rest is a body, which all parsers of requests get.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const absl::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const baton::CompletionSettings settings = {
      .model_has_temperature = (data[0] & 1) != 0,
      .refuse_unknown_fields = (data[0] & 2) != 0,
      .context_tokens = (data[0] & 4) != 0 ? size_t{8} : size_t{0}};
  const auto request = baton::ParseCompletionRequest(body, settings);
  // nlohmann's parser ends at a zero byte and skips a byte order mark. Neither is valid JSON.
  baton::Acceptor acceptor;
  const bool is_json = !absl::StrContains(body, '\0') && !absl::StartsWith(body, "\xEF\xBB\xBF") &&
                       nlohmann::json::sax_parse(body.begin(), body.end(), &acceptor);
  if (request.ok()) {
    BATON_CHECK(is_json || acceptor.beyond_double());
    baton::CheckRequest(*request);
    baton::CheckIgnored(request->ignored);
  } else {
    baton::CheckRefusal(request.status());
    BATON_CHECK(!is_json ||
                !baton::ParameterOf(request.status()).empty() ||  // It may quote these words.
                !absl::StartsWith(request.status().message(), "the body is not valid JSON") ||
                absl::StrContains(request.status().message(), "nested deeper"))
        << request.status();
  }
  const auto tokenize = baton::ParseTokenizeBody(body, settings);
  if (!tokenize.ok()) baton::CheckRefusal(tokenize.status());
  const auto detokenize = baton::ParseDetokenizeBody(body, settings);
  if (!detokenize.ok()) baton::CheckRefusal(detokenize.status());
  return 0;
}
