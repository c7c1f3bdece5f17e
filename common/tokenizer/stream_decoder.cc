#include "common/tokenizer/stream_decoder.h"

#include "common/tokenizer/utf8.h"

namespace baton {

std::string StreamDecoder::Push(TokenId id) {
  std::string text;
  if (skip_special_ && tokenizer_->IsSpecial(id)) return text;
  const absl::string_view bytes = tokenizer_->TokenBytes(id);
  pending_.append(bytes.data(), bytes.size());
  pending_.erase(0, AppendLossyUtf8(pending_, &text));
  return text;
}

std::string StreamDecoder::Finish() {
  // All of it is the beginning of one character, so it is one maximal part.
  std::string text = pending_.empty() ? "" : kReplacementCharacter;
  pending_.clear();
  return text;
}

}  // namespace baton
