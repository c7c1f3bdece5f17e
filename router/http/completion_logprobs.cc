#include "router/http/completion_logprobs.h"

#include <algorithm>
#include <cmath>

#include "absl/container/inlined_vector.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/json_value.h"
#include "router/http/json_writer.h"

namespace baton {
namespace {

// JSON has no minus infinity. OpenAI and vLLM write this value in its place.
constexpr float kLowestLogprob = -9999;

void AppendLogprob(float logprob, std::string* out) {
  AppendJsonFloat(logprob >= kLowestLogprob ? logprob : kLowestLogprob, out);
}

void AppendComma(std::string* list) {
  if (!list->empty()) list->push_back(',');
}

void AppendLabel(const Tokenizer& tokenizer, TokenId id, std::string* out) {
  const absl::string_view bytes = tokenizer.TokenBytes(id);
  AppendJsonString(IsUtf8(bytes) ? bytes : absl::string_view(TokenLabel(tokenizer, id)), out);
}

void AppendBytes(absl::string_view bytes, std::string* out) {
  out->push_back('[');
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out->push_back(',');
    AppendJsonInt(static_cast<unsigned char>(bytes[i]), out);
  }
  out->push_back(']');
}

// Appends the members of a token in a chat, without the brackets.
void AppendTokenMembers(const Tokenizer& tokenizer, TokenId id, float logprob, std::string* out) {
  out->append("\"token\":");
  AppendLabel(tokenizer, id, out);
  out->append(",\"logprob\":");
  AppendLogprob(logprob, out);
  out->append(",\"bytes\":");
  AppendBytes(tokenizer.TokenBytes(id), out);
}

// Appends the member `"label":logprob`.
void AppendTop(const Tokenizer& tokenizer, TokenId id, float logprob, std::string* out) {
  AppendLabel(tokenizer, id, out);
  out->push_back(':');
  AppendLogprob(logprob, out);
}

// Appends `key` and the elements of a list, those of `before` first.
void AppendElements(absl::string_view key, const std::string* before, const std::string& elements,
                    std::string* out) {
  absl::StrAppend(out, "\"", key, "\":[");
  if (before != nullptr) {
    out->append(*before);
    if (!before->empty() && !elements.empty()) out->push_back(',');
  }
  out->append(elements);
  out->push_back(']');
}

}  // namespace

size_t CountCharacters(absl::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

std::string TokenLabel(const Tokenizer& tokenizer, TokenId id) {
  const absl::string_view bytes = tokenizer.TokenBytes(id);
  if (IsUtf8(bytes)) return std::string(bytes);
  std::string label = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isprint(byte)) {
      label.push_back(c);
    } else {
      absl::StrAppend(&label, "\\x", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return label;
}

void LogprobLists::Add(const v1::Token& token, size_t offset, int alternatives,
                       const Tokenizer& tokenizer) {
  for (std::string* list : {&text_offset_, &token_logprobs_, &tokens_, &top_logprobs_, &bytes_}) {
    AppendComma(list);
  }
  AppendJsonInt(static_cast<int64_t>(offset), &text_offset_);
  AppendLabel(tokenizer, token.token_id(), &tokens_);
  const absl::string_view bytes = tokenizer.TokenBytes(token.token_id());
  AppendBytes(bytes, &bytes_);
  if (!token.has_logprob()) {
    token_logprobs_.append("null");
    top_logprobs_.append("null");
    return;
  }
  AppendLogprob(token.logprob(), &token_logprobs_);
  top_logprobs_.push_back('{');
  AppendTop(tokenizer, token.token_id(), token.logprob(), &top_logprobs_);
  // Two tokens may have the same text, such as a letter and a byte token. An object can't have a
  // name twice, so the more likely one stands for both.
  absl::InlinedVector<absl::string_view, 21> labels = {bytes};
  const int listed = std::min(token.top_size(), alternatives);
  for (int i = 0; i < listed; ++i) {
    const v1::TopLogprob& top = token.top(i);
    const absl::string_view other = tokenizer.TokenBytes(top.token_id());
    if (std::find(labels.begin(), labels.end(), other) != labels.end()) continue;
    labels.push_back(other);
    top_logprobs_.push_back(',');
    AppendTop(tokenizer, top.token_id(), top.logprob(), &top_logprobs_);
  }
  top_logprobs_.push_back('}');
}

void LogprobLists::AddToContent(const v1::Token& token, int alternatives,
                                const Tokenizer& tokenizer) {
  AppendComma(&content_);
  content_.push_back('{');
  AppendTokenMembers(tokenizer, token.token_id(), token.logprob(), &content_);
  content_.append(",\"top_logprobs\":[");
  for (int i = 0; i < std::min(token.top_size(), alternatives); ++i) {
    content_.append(i == 0 ? "{" : ",{");
    AppendTokenMembers(tokenizer, token.top(i).token_id(), token.top(i).logprob(), &content_);
    content_.push_back('}');
  }
  content_.append("]}");
}

void LogprobLists::Clear() {
  for (std::string* list :
       {&text_offset_, &token_logprobs_, &tokens_, &top_logprobs_, &bytes_, &content_}) {
    list->clear();
  }
}

void LogprobLists::AppendTo(const LogprobLists* before, std::string* out) const {
  const auto list = [&](absl::string_view key, std::string LogprobLists::*elements) {
    AppendElements(key, before != nullptr ? &(before->*elements) : nullptr, this->*elements, out);
  };
  out->push_back('{');
  list("text_offset", &LogprobLists::text_offset_);
  out->push_back(',');
  list("token_logprobs", &LogprobLists::token_logprobs_);
  out->push_back(',');
  list("tokens", &LogprobLists::tokens_);
  out->push_back(',');
  list("top_logprobs", &LogprobLists::top_logprobs_);
  out->push_back(',');
  list("bytes", &LogprobLists::bytes_);
  out->push_back('}');
}

void LogprobLists::AppendContentTo(std::string* out) const {
  absl::StrAppend(out, "{\"content\":[", content_, "]}");
}

size_t LogprobLists::bytes() const {
  return text_offset_.capacity() + token_logprobs_.capacity() + tokens_.capacity() +
         top_logprobs_.capacity() + bytes_.capacity() + content_.capacity();
}

void AppendPromptLogprob(const v1::Token& token, int alternatives, const Tokenizer& tokenizer,
                         std::string* out) {
  if (!token.has_logprob()) {
    out->append("null");
    return;
  }
  const auto append = [&](TokenId id, float logprob, int rank) {
    absl::StrAppend(out, "\"", id, "\":{\"logprob\":");
    AppendLogprob(logprob, out);
    out->append(",\"rank\":");
    if (rank > 0) {
      AppendJsonInt(rank, out);
    } else {
      out->append("null");
    }
    out->append(",\"decoded_token\":");
    AppendLabel(tokenizer, id, out);
    out->push_back('}');
  };
  int rank = 0;
  for (int i = 0; i < token.top_size() && rank == 0; ++i) {
    if (token.top(i).token_id() == token.token_id()) rank = i + 1;
  }
  out->push_back('{');
  append(token.token_id(), token.logprob(), rank);
  for (int i = 0; i < std::min(token.top_size(), alternatives); ++i) {
    if (i + 1 == rank) continue;
    out->push_back(',');
    append(token.top(i).token_id(), token.top(i).logprob(), i + 1);
  }
  out->push_back('}');
}

absl::string_view PromptWalk::Next(const Tokenizer& tokenizer, TokenId id) {
  const absl::string_view left = rest();
  absl::string_view bytes = tokenizer.TokenBytes(id);
  if (!absl::StartsWith(left, bytes)) {
    // The first token of a text may lack the blank that it has behind other tokens.
    if (absl::StartsWith(bytes, " ") && absl::StartsWith(left, bytes.substr(1))) {
      bytes.remove_prefix(1);
    } else if (tokenizer.IsSpecial(id)) {
      bytes = {};
    }
  }
  // The tokeniser may have changed the text, such as its letters' case. The length is then a guess.
  const size_t end = std::min(left.size(), bytes.size());
  at_ += end;
  return left.substr(0, end);
}

}  // namespace baton
