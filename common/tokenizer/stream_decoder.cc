#include "common/tokenizer/stream_decoder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "common/tokenizer/utf8.h"

namespace baton {

StreamDecoder::StreamDecoder(const Tokenizer* tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {
  Reset();
}

StreamDecoder StreamDecoder::ForAnswer(const Tokenizer* tokenizer, absl::Span<const TokenId> prompt,
                                       bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  decoder.eager_ = tokenizer->decoder().behind_by_character();
  for (const TokenId id : prompt) {
    if (decoder.BeginIsBehind()) break;
    decoder.Push(id);
  }
  // Bytes at the prompt's end that are no character are text all the same, so the answer does not
  // begin the text.
  std::string text;
  decoder.FlushRun(&text);
  decoder.pending_.clear();
  return decoder;
}

bool StreamDecoder::BeginIsBehind() const {
  const Decoder& decoder = tokenizer_->decoder();
  if ((first_before_ && decoder.first_differs_before()) ||
      (first_behind_ && decoder.first_differs_behind())) {
    return false;
  }
  for (size_t i = 0; i < edges_.size(); ++i) {
    if (edges_[i].start_left > 0 || decoder.whole()[i].stop > 0) return false;
  }
  return true;
}

void StreamDecoder::Reset() {
  first_before_ = first_behind_ = true;
  run_.clear();
  pending_.clear();
  edges_.clear();
  for (const Decoder::Step& step : tokenizer_->decoder().whole())
    edges_.push_back({.start_left = step.start});
}

bool StreamDecoder::pending() const {
  if (!run_.empty() || !pending_.empty()) return true;
  for (const Edge& edge : edges_) {
    if (edge.held > 0) return true;
  }
  return false;
}

std::string StreamDecoder::Push(TokenId id) {
  std::string out;
  if (!tokenizer_->IsToken(id) || (skip_special_ && tokenizer_->IsSpecial(id))) return out;
  const Decoder& decoder = tokenizer_->decoder();
  const bool first = std::exchange(first_before_, false);
  if ((first && decoder.first_differs_before()) ||
      (first_behind_ && decoder.first_differs_behind())) {
    const std::string token = decoder.BeforeFallback(tokenizer_->TokenText(id), first);
    const auto byte = decoder.byte_fallback() ? Decoder::ByteOf(token) : std::nullopt;
    if (byte) {
      run_.push_back(static_cast<char>(*byte));
      ReleaseRun(&out);
    } else {
      FlushRun(&out);
      PushToken(token, &out);
    }
    return out;
  }
  if (tokenizer_->IsByte(id)) {
    const absl::string_view byte = tokenizer_->TokenBytes(id);
    run_.append(byte.data(), byte.size());
    ReleaseRun(&out);
    return out;
  }
  FlushRun(&out);
  first_behind_ = false;
  Join(tokenizer_->TokenBytes(id), &out);
  return out;
}

void StreamDecoder::ReleaseRun(std::string* out) {
  if (!eager_) return;
  std::string text;
  run_.erase(0, AppendLossyUtf8(run_, &text));
  if (!text.empty()) PushToken(text, out);
}

void StreamDecoder::FlushRun(std::string* out) {
  const std::string run = std::exchange(run_, {});
  if (run.empty()) return;
  if (eager_) {
    PushToken(kReplacementCharacter, out);  // the rest is the beginning of one character
    return;
  }
  if (!FindInvalidUtf8(run)) {
    PushToken(run, out);
    return;
  }
  for (size_t i = 0; i < run.size(); ++i) PushToken(kReplacementCharacter, out);
}

void StreamDecoder::PushToken(absl::string_view token, std::string* out) {
  const Decoder& decoder = tokenizer_->decoder();
  Join(decoder.BytesOf(decoder.BehindFallback(token, std::exchange(first_behind_, false))), out);
}

void StreamDecoder::Join(absl::string_view bytes, std::string* out) {
  if (!tokenizer_->decoder().byte_level()) {
    PushJoined(std::string(bytes), out);
    return;
  }
  pending_.append(bytes.data(), bytes.size());
  std::string text;
  pending_.erase(0, AppendLossyUtf8(pending_, &text));
  PushJoined(std::move(text), out);
}

void StreamDecoder::PushJoined(std::string text, std::string* out) {
  const std::vector<Decoder::Step>& steps = tokenizer_->decoder().whole();
  for (size_t i = 0; i < steps.size(); ++i) {
    const Decoder::Step& step = steps[i];
    if (step.kind == Decoder::Step::Kind::kMetaspace) {
      text = absl::StrReplaceAll(text, {{step.from, step.drops_in_first ? "" : " "}});
      continue;
    }
    Edge& edge = edges_[i];
    absl::string_view rest = text;
    for (; edge.start_left > 0 && absl::StartsWith(rest, step.from); --edge.start_left)
      rest.remove_prefix(step.from.size());
    if (rest.empty()) {
      text.clear();
      continue;
    }
    edge.start_left = 0;
    const absl::string_view kept = Decoder::StripStop(rest, step.from, step.stop);
    const size_t at_end = (rest.size() - kept.size()) / step.from.size();
    // If the new text consists only of characters to strip, the characters held back earlier may
    // still be stripped. So both stay held back, but never more than `step.stop` characters.
    const size_t held = kept.empty() ? std::min(edge.held + at_end, step.stop) : at_end;
    std::string certain;
    for (size_t sure = edge.held + at_end - held; sure > 0; --sure) certain += step.from;
    certain.append(kept.data(), kept.size());
    edge.held = held;
    text = std::move(certain);
  }
  *out += text;
}

std::string StreamDecoder::Finish() {
  std::string out;
  FlushRun(&out);
  // The rest in pending_ is the beginning of a single character, so it becomes a single U+FFFD.
  if (!pending_.empty()) PushJoined(kReplacementCharacter, &out);
  Reset();
  return out;
}

}  // namespace baton
