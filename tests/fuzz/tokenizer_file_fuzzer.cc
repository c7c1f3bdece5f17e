#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/utf8.h"

// The input is a tokenizer.json. If the input has a zero byte, the bytes after the first zero byte
// are a text for the tokenizer.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const auto tokenizer = baton::Tokenizer::FromJson(input.substr(0, zero), "fuzz.json");
  if (!tokenizer.ok()) {
    BATON_CHECK(tokenizer.status().code() == absl::StatusCode::kInvalidArgument)
        << tokenizer.status();
    BATON_CHECK(tokenizer.status().message().find("fuzz.json: ") == 0) << tokenizer.status();
    return 0;
  }
  std::string text =
      "Hello w\u00f6rld's 12\u0663 <s>\n\n  \U0001F600 caf\u0065\u0301\u3000\u2581x ";
  if (zero != absl::string_view::npos) text = std::string(input.substr(zero + 1));
  for (const bool specials : {false, true}) {
    const auto ids =
        (*tokenizer)->Encode(text, {.parse_special = specials, .add_special = specials});
    if (!ids.ok()) {
      BATON_CHECK(ids.status().code() == absl::StatusCode::kInvalidArgument) << ids.status();
      continue;
    }
    for (const baton::TokenId id : *ids) BATON_CHECK((*tokenizer)->IsToken(id)) << id;
    baton::StreamDecoder decoder(tokenizer->get(), specials);
    std::string streamed;
    for (const baton::TokenId id : *ids) {
      const std::string piece = decoder.Push(id);
      BATON_CHECK(!baton::FindInvalidUtf8(piece)) << id;
      streamed += piece;
    }
    streamed += decoder.Finish();
    BATON_CHECK(!decoder.pending() && streamed == (*tokenizer)->Decode(*ids, specials));
  }
  for (baton::TokenId id = -1; id <= (*tokenizer)->vocab_size(); ++id) {
    const std::string text_of_one = (*tokenizer)->Decode({id}, /*skip_special=*/false);
    BATON_CHECK(!baton::FindInvalidUtf8(text_of_one)) << id;
    BATON_CHECK((*tokenizer)->IsToken(id) || text_of_one.empty()) << id;
    if (id > 2000) break;
  }
  return 0;
}
