#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

struct Form {
  const char* name;
  bool keeps_text;  // True if decoding the tokens of a text gives back the same text.
  // True if decoding gives a space for each U+2581 of the text, and the rest of the text unchanged.
  bool marks_space;
};
constexpr Form kForms[] = {
    {"gpt2", true},         {"llama3", true},   {"qwen2"},     {"o200k", true},
    {"tekken", true},       {"deepseek", true}, {"phi3"},      {"deepseek_coder", true},
    {"falcon", true},       {"mistral3"},       {"flags"},     {"gemma"},
    {"llama2", true, true}, {"metaspace"},      {"flags_text"}};

std::vector<std::unique_ptr<const Tokenizer>> LoadAll() {
  std::vector<std::unique_ptr<const Tokenizer>> all;
  for (const Form& form : kForms) {
    auto tokenizer = Tokenizer::FromFile(
        absl::StrCat(BATON_SOURCE_DIR "/common/tokenizer/testdata/", form.name, ".tokenizer.json"));
    BATON_CHECK(tokenizer.ok()) << tokenizer.status();
    all.push_back(*std::move(tokenizer));
  }
  return all;
}

void CheckStream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  StreamDecoder decoder(&tokenizer, skip_special);
  std::string streamed;
  for (const TokenId id : ids) {
    const std::string piece = decoder.Push(id);
    BATON_CHECK(!FindInvalidUtf8(piece)) << id;
    streamed += piece;
  }
  streamed += decoder.Finish();
  BATON_CHECK(!decoder.pending() && streamed == tokenizer.Decode(ids, skip_special));
}

}  // namespace
}  // namespace baton

// The first byte of the input chooses a tokenizer of common/tokenizer/testdata. The second byte
// holds flags. The rest of the input is a text, and is also read as token ids of two bytes each.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const tokenizers =
      new std::vector<std::unique_ptr<const baton::Tokenizer>>(baton::LoadAll());
  if (size < 2) return 0;
  const size_t picked = data[0] % tokenizers->size();
  const baton::Form& form = baton::kForms[picked];
  const baton::Tokenizer& tokenizer = *(*tokenizers)[picked];
  const bool parse_special = data[1] & 1, add_special = data[1] & 2, skip_special = data[1] & 4;
  const absl::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);

  const auto ids =
      tokenizer.Encode(text, {.parse_special = parse_special, .add_special = add_special});
  BATON_CHECK(ids.ok() == !baton::FindInvalidUtf8(text)) << form.name << ' ' << ids.status();
  if (ids.ok()) {
    for (const baton::TokenId id : *ids) BATON_CHECK(tokenizer.IsToken(id)) << id;
    baton::CheckStream(tokenizer, *ids, skip_special);
    if (form.keeps_text && !parse_special && !add_special) {
      const std::string back = tokenizer.Decode(*ids, /*skip_special=*/false);
      BATON_CHECK(back == (form.marks_space ? absl::StrReplaceAll(text, {{"\u2581", " "}}) : text))
          << form.name;
    }
  }
  std::vector<baton::TokenId> sampled;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    sampled.push_back((static_cast<uint8_t>(text[i]) << 8 | static_cast<uint8_t>(text[i + 1])) %
                      (tokenizer.vocab_size() + 2));
  }
  baton::CheckStream(tokenizer, sampled, skip_special);
  return 0;
}
