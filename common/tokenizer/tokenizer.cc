#include "common/tokenizer/tokenizer.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/lfs_pointer.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/encode_stop.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr size_t kMaxBytesOfToken = size_t{1} << 20;
constexpr size_t kMaxBytesOfTokens = size_t{1} << 30;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "rb"), &fclose);
  const auto failed = [&path](int error) {
    const std::string message = absl::StrCat(path, ": ", strerror(error));
    return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
  };
  if (file == nullptr) return failed(errno);
  std::string text;
  char buffer[1 << 16];
  while (const size_t bytes = fread(buffer, 1, sizeof(buffer), file.get())) {
    text.append(buffer, bytes);
    if (text.size() > kMaxFileBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": more than ", kMaxFileBytes, " bytes"));
    }
  }
  if (ferror(file.get())) return failed(errno);
  return text;
}

// Returns an added token with the id that the file gives it. Its content may be empty.
absl::StatusOr<AddedToken> ReadAddedToken(const JsonNode& node) {
  AddedToken token;
  ASSIGN_OR_RETURN(const auto id, node.Get("id"));
  ASSIGN_OR_RETURN(const auto id_value, id.Int(0, kMaxVocabSize - 1));
  token.id = static_cast<TokenId>(id_value);

  ASSIGN_OR_RETURN(const auto content, node.Get("content"));
  ASSIGN_OR_RETURN(const auto text, content.String());
  if (text.size() > AddedTokenMatcher::kMaxContentBytes) {
    return content.Error(absl::StrCat("an added token of ", text.size(),
                                      " bytes; supported: up to ",
                                      AddedTokenMatcher::kMaxContentBytes));
  }
  token.content = std::string(text);

  ASSIGN_OR_RETURN(const auto special, node.BoolOr("special", false));
  token.special = special;
  token.normalized = !token.special;
  for (const auto& [key, flag] :
       {std::pair("single_word", &token.single_word), std::pair("lstrip", &token.lstrip),
        std::pair("rstrip", &token.rstrip), std::pair("normalized", &token.normalized)}) {
    ASSIGN_OR_RETURN(const auto value, node.BoolOr(key, *flag));
    *flag = value;
  }
  return token;
}

// Returns true if one of the parts has all bytes [begin, end).
bool IsWithin(absl::Span<const TextRange> parts, size_t begin, size_t end) {
  const auto* const part =
      std::lower_bound(parts.begin(), parts.end(), end,
                       [](const TextRange& one, size_t byte) { return one.end < byte; });
  return part != parts.end() && part->begin <= begin;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::FromFile(const std::string& path) {
  ASSIGN_OR_RETURN(const auto text, ReadFile(path));
  if (IsLfsPointer(text)) return absl::InvalidArgumentError(LfsPointerMessage(path));
  return FromJson(text, path);
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::FromJson(absl::string_view json,
                                                                     absl::string_view name) {
  ASSIGN_OR_RETURN(const auto file, JsonFile::Parse(json, name));
  const JsonNode root = file->root();
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);

  ASSIGN_OR_RETURN(const auto pre_tokenizer_node, root.Find("pre_tokenizer"));
  ASSIGN_OR_RETURN(auto pre_tokenizer, PreTokenizer::FromJson(pre_tokenizer_node));
  tokenizer->pre_tokenizer_ = std::move(pre_tokenizer);

  ASSIGN_OR_RETURN(const auto model, root.Get("model"));
  ASSIGN_OR_RETURN(auto bpe, Bpe::FromJson(model, tokenizer->pre_tokenizer_->spelling(),
                                           &tokenizer->vocabulary_));
  tokenizer->model_ = std::move(bpe);
  if (const std::string& drops = tokenizer->model_->drops(); !drops.empty()) {
    tokenizer->warnings_.push_back(
        absl::StrCat(name, ": ", drops, ": texts lose them, as with the Hugging Face library"));
  }

  ASSIGN_OR_RETURN(const auto normalizer_node, root.Find("normalizer"));
  ASSIGN_OR_RETURN(auto normalizer, Normalizer::FromJson(normalizer_node));
  tokenizer->normalizer_ = std::move(normalizer);
  if (tokenizer->pre_tokenizer_->asks_for_start() &&
      !tokenizer->normalizer_->keeps_characters_apart()) {
    return (normalizer_node)
        ->Error(
            "supported before a Metaspace with prepend_scheme \"first\": nothing, or a Replace of "
            "one "
            "character by another");
  }

  RETURN_IF_ERROR(tokenizer->ReadAddedTokens(root, name));

  ASSIGN_OR_RETURN(const auto post_processor_node, root.Find("post_processor"));
  ASSIGN_OR_RETURN(auto post_processor,
                   PostProcessor::FromJson(post_processor_node, tokenizer->vocabulary_));
  tokenizer->post_processor_ = std::move(post_processor);

  ASSIGN_OR_RETURN(const auto decoder_node, root.Get("decoder"));
  ASSIGN_OR_RETURN(auto decoder, Decoder::FromJson(decoder_node));
  tokenizer->decoder_ = std::move(decoder);
  if (absl::Status spelled = tokenizer->SpellOutBytes(); !spelled.ok()) {
    return decoder_node.Error(spelled.message());
  }
  return std::unique_ptr<const Tokenizer>(std::move(tokenizer));
}

// The ids of the file are not read as they are: a token that the model has keeps the model's id,
// and the others are counted on behind the model's tokens, in the order of the file. Hugging Face
// tokenizers does the same.
absl::Status Tokenizer::ReadAddedTokens(const JsonNode& root, absl::string_view name) {
  ASSIGN_OR_RETURN(const auto list, root.Find("added_tokens"));
  std::vector<AddedToken> tokens;
  if (list) {
    ASSIGN_OR_RETURN(const auto nodes, list->Array());
    const auto of_model = static_cast<TokenId>(vocabulary_.count());
    TokenId next = of_model;
    std::string renumbered;
    for (const JsonNode& node : nodes) {
      ASSIGN_OR_RETURN(auto token, ReadAddedToken(node));
      if (token.content.empty()) continue;
      const TokenId of_file =
          std::exchange(token.id, vocabulary_.Find(token.content).value_or(next));
      if (absl::Status added = vocabulary_.Add(token.content, token.id); !added.ok()) {
        return node.Error(added.message());
      }
      next = std::max(next, token.id + 1);
      if (token.id != of_file && renumbered.empty()) {
        renumbered = absl::StrCat(
            "added tokens have other ids than in the file, as the Hugging Face "
            "library numbers them: \"",
            absl::Utf8SafeCEscape(token.content), "\" has ", token.id, " and not ", of_file);
      }
      tokens.push_back(std::move(token));
    }
    if (!renumbered.empty()) warnings_.push_back(absl::StrCat(name, ": ", renumbered));
  }
  special_.resize(vocabulary_.size());
  EncodeStop never;
  std::string buffer;
  // Adds special tokens first: of two tokens with the same text, the one added first is found.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : tokens) {
      if (token.special != special) continue;
      if (special) special_[token.id] = true;
      if (token.normalized) {
        const auto pattern = normalizer_->Normalize(token.content, &never, &buffer);
        if (!pattern.ok()) return list->Error(pattern.status().message());
        if (pattern->empty() || pattern->size() > AddedTokenMatcher::kMaxContentBytes) {
          return list->Error(absl::StrCat("the added token with id ", token.id, " is ",
                                          pattern->size(),
                                          " bytes long once normalised; supported: 1 to ",
                                          AddedTokenMatcher::kMaxContentBytes));
        }
        has_normalized_special_ |= special;
        normalized_tokens_.Add(token, *pattern);
      } else {
        raw_tokens_.Add(token, token.content);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::SpellOutBytes() {
  byte_ends_.assign(1, 0);
  byte_tokens_.resize(vocabulary_.size());
  for (TokenId id = 0; id < vocabulary_.size(); ++id) {
    if (vocabulary_.Contains(id)) {
      const double max = static_cast<double>(vocabulary_.Text(id).size()) * decoder_->growth();
      if (max > kMaxBytesOfToken) {
        return absl::InvalidArgumentError(
            absl::StrCat("may turn the token ", id, " into ", static_cast<int64_t>(max),
                         " bytes; supported: at most ", kMaxBytesOfToken));
      }
      const std::string token = decoder_->BeforeFallback(vocabulary_.Text(id), /*first=*/false);
      const auto byte = decoder_->byte_fallback() ? Decoder::ByteOf(token) : std::nullopt;
      byte_tokens_[id] = byte.has_value();
      if (byte) {
        bytes_.push_back(static_cast<char>(*byte));
      } else {
        bytes_ += decoder_->BytesOf(decoder_->BehindFallback(token, /*first=*/false));
      }
    }
    if (bytes_.size() > kMaxBytesOfTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("turns the tokens' texts into more than ", kMaxBytesOfTokens, " bytes"));
    }
    byte_ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TextRange>> Tokenizer::NormalizedRanges(
    absl::string_view whole, TextRange of_text, absl::Span<const TextRange> ranges,
    EncodeStop* stop) const {
  std::vector<TextRange> normalized;
  if (!has_normalized_special_ || ranges.empty()) return normalized;
  // Parts of the text. Those with odd numbers lie in `ranges`.
  std::vector<std::string> parts;
  size_t at = of_text.begin;
  const auto* range =
      std::lower_bound(ranges.begin(), ranges.end(), of_text.begin,
                       [](const TextRange& one, size_t byte) { return one.end <= byte; });
  for (; range != ranges.end() && range->begin < of_text.end; ++range) {
    const size_t begin = std::max(range->begin, of_text.begin);
    const size_t end = std::min(range->end, of_text.end);
    parts.emplace_back(whole.substr(at, begin - at));
    parts.emplace_back(whole.substr(begin, end - begin));
    at = end;
  }
  parts.emplace_back(whole.substr(at, of_text.end - at));
  ASSIGN_OR_RETURN(const bool apart, normalizer_->NormalizeParts(&parts, stop));
  // Nothing is found where it is not clear which text is whose.
  if (!apart) return normalized;
  at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i % 2 == 1) normalized.push_back({at, at + parts[i].size()});
    at += parts[i].size();
  }
  return normalized;
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::Encode(absl::string_view utf8,
                                                       EncodeOptions options) const {
  if (const auto bad = FindInvalidUtf8(utf8)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text is not UTF-8: byte ", *bad, " of ", utf8.size(), " is 0x",
                     absl::Hex(static_cast<unsigned char>(utf8[*bad]), absl::kZeroPad2),
                     ", where no valid character begins"));
  }
  std::vector<TokenId> ids;
  if (options.add_special) ids = post_processor_.before;
  ids.reserve(ids.size() + std::min(utf8.size() / 4, options.max_tokens));

  EncodeStop stop(options.max_tokens, std::move(options.interrupted));
  Bpe::Scratch scratch;
  const auto encode = [&](absl::string_view text, bool at_start) {
    return pre_tokenizer_->Split(text, at_start, [&](absl::string_view word) {
      return model_->Encode(word, &stop, &scratch, &ids);
    });
  };
  const auto add = [&](const AddedToken& token) {
    ids.push_back(token.id);
    RETURN_IF_ERROR(stop.Worked(token.content.size()));
    return stop.CheckTokens(ids.size());
  };
  const auto special_in = [&](absl::Span<const TextRange> ranges) {
    return [&options, ranges](size_t begin, size_t end) {
      return options.parse_special || IsWithin(ranges, begin, end);
    };
  };
  RETURN_IF_ERROR(raw_tokens_.Split(
      utf8, special_in(options.special_ranges),
      [&](absl::string_view text, const AddedToken* token) -> absl::Status {
        if (token != nullptr) return add(*token);
        std::string buffer;
        ASSIGN_OR_RETURN(const auto normalized, normalizer_->Normalize(text, &stop, &buffer));
        const bool begins = text.data() == utf8.data();
        const auto at = static_cast<size_t>(text.data() - utf8.data());
        ASSIGN_OR_RETURN(
            const std::vector<TextRange> ranges,
            NormalizedRanges(utf8, {at, at + text.size()}, options.special_ranges, &stop));
        return normalized_tokens_.Split(
            normalized, special_in(ranges), [&](absl::string_view part, const AddedToken* found) {
              return found != nullptr ? add(*found)
                                      : encode(part, begins && part.data() == normalized.data());
            });
      }));
  if (options.dropped_bytes != nullptr) *options.dropped_bytes = scratch.dropped_bytes;
  if (options.add_special) {
    ids.insert(ids.end(), post_processor_.behind.begin(), post_processor_.behind.end());
  }
  return ids;
}

absl::string_view Tokenizer::TokenBytes(TokenId id) const {
  if (!IsToken(id)) return {};
  return absl::string_view(bytes_).substr(byte_ends_[id], byte_ends_[id + 1] - byte_ends_[id]);
}

std::string Tokenizer::Decode(absl::Span<const TokenId> ids, bool skip_special) const {
  StreamDecoder decoder(this, skip_special);
  std::string text;
  for (const TokenId id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

}  // namespace baton
