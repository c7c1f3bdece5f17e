#include "common/tokenizer/bpe.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/json_value.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

// A word with more symbols than this is first cut at all places that no merge can cross.
constexpr size_t kLongWord = 40;
// A long word is split into this number of symbols at a time.
constexpr size_t kSymbolsAtOnce = 64;

// Returns false for bytes that no UTF-8 text contains. They need no token.
bool OccursInUtf8(int byte) { return byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4); }

absl::Status CheckOptions(const JsonNode& model) {
  if (const auto type = model.StringOr("type", "BPE"); !type.ok()) {
    return type.status();
  } else if (*type != "BPE") {
    return model.Get("type")->Unsupported("\"BPE\"");
  }
  ASSIGN_OR_RETURN(const auto dropout, model.Find("dropout"));
  if (dropout && dropout->Describe() != "0" && dropout->Describe() != "0.0") {
    return dropout->Unsupported("null or 0: the same text gives the same tokens");
  }
  for (absl::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const auto value, model.StringOr(affix, ""));
    if (!value.empty()) return model.Get(affix)->Unsupported("null or \"\"");
  }
  return absl::OkStatus();
}

absl::Status ReadVocabulary(const JsonNode& vocab, Vocabulary* vocabulary) {
  const JsonValue& tokens = vocab.value();
  if (!tokens.IsObject()) {
    return vocab.Error(
        absl::StrCat("found ", vocab.Describe(), ", expected an object of token: id"));
  }
  vocabulary->Reserve(tokens.size());
  return tokens.ForEachMember([&](absl::string_view key, JsonValue value) {
    const std::optional<int64_t> id = value.Int();
    if (!id || *id < 0 || *id >= kMaxVocabSize) {
      return vocab.Error(absl::StrCat("token \"", key, "\" has id ", value.Describe(),
                                      ", expected an integer from 0 to ", kMaxVocabSize - 1));
    }
    if (vocabulary->Find(key)) {
      return vocab.Error(absl::StrCat("token \"", key, "\" occurs twice"));
    }
    const absl::Status added = vocabulary->Add(key, static_cast<TokenId>(*id));
    return added.ok() ? added : vocab.Error(added.message());
  });
}

// Reads the two tokens of a merge, written as "left right" or ["left", "right"]. Returns false if
// the merge is malformed.
bool SplitMerge(const JsonValue& merge, absl::string_view* left, absl::string_view* right) {
  if (const auto text = merge.String()) {
    const size_t space = text->find(' ');
    if (space == absl::string_view::npos || text->find(' ', space + 1) != absl::string_view::npos)
      return false;
    *left = text->substr(0, space);
    *right = text->substr(space + 1);
    return !left->empty() && !right->empty();
  }
  if (!merge.IsArray() || merge.size() != 2) return false;
  std::optional<absl::string_view> pair[2];
  int count = 0;
  const absl::Status visited = merge.ForEachElement([&](JsonValue element) {
    pair[count++] = element.String();
    return absl::OkStatus();
  });
  if (!visited.ok() || !pair[0] || !pair[1]) return false;
  *left = *pair[0];
  *right = *pair[1];
  return !left->empty() && !right->empty();
}

absl::Status ReadMerges(const JsonNode& node, const Vocabulary& vocabulary, BpeMerges* merges) {
  const JsonValue& array = node.value();
  if (!array.IsArray()) {
    return node.Error(absl::StrCat("found ", node.Describe(), ", expected an array of merges"));
  }
  merges->Reserve(array.size());
  std::string both;
  size_t index = 0;
  return array.ForEachElement([&](JsonValue element) {
    const std::string suffix = absl::StrCat("[", index++, "]");
    absl::string_view left, right;
    if (!SplitMerge(element, &left, &right)) {
      return node.ErrorAt(suffix,
                          absl::StrCat("found ", element.Describe(),
                                       ", expected \"left right\" or [\"left\", \"right\"]"));
    }
    both.assign(left.data(), left.size());
    both.append(right.data(), right.size());
    TokenId ids[3];
    const absl::string_view texts[3] = {left, right, both};
    for (int i = 0; i < 3; ++i) {
      const std::optional<TokenId> id = vocabulary.Find(texts[i]);
      if (!id) {
        return node.ErrorAt(
            suffix, absl::StrCat("merges \"", left, "\" and \"", right, "\", but \"", texts[i],
                                 "\" is not a token of the vocabulary"));
      }
      ids[i] = *id;
    }
    merges->Add(ids[0], ids[1], ids[2]);
    return absl::OkStatus();
  });
}

std::string ByteFallbackName(int byte) { return absl::StrFormat("<0x%02X>", byte); }
std::string TextOfByte(int byte) {
  std::string text;
  AppendUtf8(ByteToChar(static_cast<unsigned char>(byte)), &text);
  return text;
}

// Returns the bytes that have no token for their character in the byte alphabet.
std::vector<int> MissingBytes(const Vocabulary& vocabulary) {
  std::vector<int> missing;
  for (int byte = 0; byte < 256; ++byte) {
    if (!vocabulary.Find(TextOfByte(byte))) missing.push_back(byte);
  }
  return missing;
}
bool LacksBytes(const Vocabulary& vocabulary) {
  const std::vector<int> missing = MissingBytes(vocabulary);
  return std::any_of(missing.begin(), missing.end(), OccursInUtf8);
}

size_t Characters(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

absl::StatusOr<Bpe> Bpe::FromJson(const JsonNode& model, WordSpelling spelling,
                                  Vocabulary* vocabulary) {
  RETURN_IF_ERROR(CheckOptions(model));
  ASSIGN_OR_RETURN(const auto vocab, model.Get("vocab"));
  RETURN_IF_ERROR(ReadVocabulary(vocab, vocabulary));
  ASSIGN_OR_RETURN(const auto merges, model.Get("merges"));

  Bpe bpe;
  for (const auto& [key, flag] : {std::pair("byte_fallback", &bpe.byte_fallback_),
                                  std::pair("fuse_unk", &bpe.fuse_unknown_)}) {
    ASSIGN_OR_RETURN(const auto value, model.BoolOr(key, false));
    *flag = value;
  }
  ASSIGN_OR_RETURN(const auto ignore_merges, model.BoolOr("ignore_merges", false));
  ASSIGN_OR_RETURN(const auto unknown, model.Find("unk_token"));
  if (unknown) {
    ASSIGN_OR_RETURN(const auto text, unknown->String());
    bpe.unknown_ = vocabulary->Find(text).value_or(-1);
  }
  RETURN_IF_ERROR(ReadMerges(merges, *vocabulary, &bpe.merges_));

  bpe.bytes_ = spelling == WordSpelling::kBytes && !LacksBytes(*vocabulary);
  bpe.spell_out_ = spelling == WordSpelling::kBytes && !bpe.bytes_;
  bpe.ReadSymbols(*vocabulary);
  RETURN_IF_ERROR(bpe.FindDrops(model, spelling, *vocabulary));
  bpe.merges_.FindJoins(bpe.Symbols(), [&](TokenId id) { return vocabulary->Text(id).size(); });
  // The text of a merged token is made of the texts of its symbols, of at least one character each.
  for (TokenId id = 0; id < vocabulary->size(); ++id) {
    bpe.max_symbols_ = std::max(bpe.max_symbols_, Characters(vocabulary->Text(id)));
  }
  bpe.FindKnownWords(*vocabulary, ignore_merges);
  return bpe;
}

void Bpe::ReadSymbols(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = -1;
    if (bytes_ || byte_fallback_) {
      const std::string name = bytes_ ? TextOfByte(byte) : ByteFallbackName(byte);
      byte_ids_[byte] = vocabulary.Find(name).value_or(-1);
    }
  }
  ascii_ids_.fill(-1);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const absl::string_view text = vocabulary.Text(id);
    if (bytes_ || text.empty()) continue;
    const Utf8Char c = DecodeUtf8(text.data());
    if (static_cast<size_t>(c.bytes) != text.size()) continue;
    if (c.code < ascii_ids_.size()) {
      ascii_ids_[c.code] = id;
    } else {
      char_ids_.emplace(c.code, id);
    }
  }
}

absl::Status Bpe::FindDrops(const JsonNode& model, WordSpelling spelling,
                            const Vocabulary& vocabulary) {
  if (bytes_ || unknown_ >= 0) return absl::OkStatus();
  if (byte_fallback_) {
    bool all = true;
    for (int byte = 0; byte < 256; ++byte) all &= byte_ids_[byte] >= 0 || !OccursInUtf8(byte);
    if (all) return absl::OkStatus();
  }
  if (spelling == WordSpelling::kByteAlphabet && !LacksBytes(vocabulary)) return absl::OkStatus();
  // Hugging Face tokenizers fails at the first text with an unknown character.
  ASSIGN_OR_RETURN(const auto unknown, model.Find("unk_token"));
  if (unknown) return unknown->Error("the token for unknown characters is not in the vocabulary");
  drops_ = spelling == WordSpelling::kText
               ? "the vocabulary has no token for some characters, and there is no unk_token"
               : absl::StrCat("the vocabulary has no token for ", MissingBytes(vocabulary).size(),
                              " of the 256 bytes, and there is no unk_token");
  return absl::OkStatus();
}

std::vector<TokenId> Bpe::Symbols() const {
  std::vector<TokenId> ids;
  const auto add = [&ids](TokenId id) {
    if (id >= 0) ids.push_back(id);
  };
  for (const TokenId id : byte_ids_) add(id);
  for (const TokenId id : ascii_ids_) add(id);
  for (const auto& [code, id] : char_ids_) add(id);
  add(unknown_);
  return ids;
}

void Bpe::FindKnownWords(const Vocabulary& vocabulary, bool ignore_merges) {
  EncodeStop never;
  Scratch scratch;
  std::vector<TokenId> merged;
  size_t longest = 0;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.Contains(id)) continue;
    std::string word(vocabulary.Text(id));
    if (bytes_) {
      std::optional<std::string> bytes = BytesOfText(word);
      if (!bytes || FindInvalidUtf8(*bytes)) continue;
      word = *std::move(bytes);
    }
    if (word.empty()) continue;
    merged.clear();
    BATON_CHECK(Merge(word, &never, &scratch, &merged).ok()) << id;
    const bool leads_here = merged.size() == 1 && merged[0] == id;
    if (!leads_here && !ignore_merges) continue;
    longest = std::max(longest, word.size());
    words_.emplace(std::move(word), Known{id, leads_here});
  }
  longest_word_ = longest;
}

absl::Status Bpe::Encode(absl::string_view word, EncodeStop* stop, Scratch* scratch,
                         std::vector<TokenId>* out) const {
  std::string spelled;
  if (spell_out_) {
    spelled = TextOfBytes(word);
    word = spelled;
  }
  if (word.size() <= longest_word_) {
    if (const auto known = words_.find(word); known != words_.end()) {
      out->push_back(known->second.id);
      RETURN_IF_ERROR(stop->Worked(word.size()));
      return stop->CheckTokens(out->size());
    }
  }
  return Merge(word, stop, scratch, out);
}

bool Bpe::TakeApart(absl::string_view word, size_t enough, Position* position,
                    Scratch* scratch) const {
  auto& symbols = scratch->symbols;
  auto& begins = scratch->begins;
  size_t& at = position->at;
  const auto add = [&](TokenId id, size_t begin) {
    symbols.push_back(id);
    begins.push_back(static_cast<uint32_t>(begin));
  };
  if (bytes_) {
    for (; at < word.size() && symbols.size() < enough; ++at) {
      add(byte_ids_[static_cast<unsigned char>(word[at])], at);
    }
    return at == word.size();
  }
  bool& unknown_before = position->unknown_before;
  const auto add_bytes = [&](absl::string_view bytes) {
    for (const char byte : bytes) {
      if (byte_ids_[static_cast<unsigned char>(byte)] < 0) return false;
    }
    for (size_t i = 0; i < bytes.size(); ++i) {
      add(byte_ids_[static_cast<unsigned char>(bytes[i])], at + i);
    }
    return true;
  };
  while (at < word.size() && symbols.size() < enough) {
    const Utf8Char c = DecodeUtf8(word.data() + at);
    TokenId id = -1;
    if (c.code < ascii_ids_.size()) {
      id = ascii_ids_[c.code];
    } else if (const auto found = char_ids_.find(c.code); found != char_ids_.end()) {
      id = found->second;
    }
    if (id >= 0) {
      if (unknown_before) add(unknown_, at);
      unknown_before = false;
      add(id, at);
    } else if (byte_fallback_ && add_bytes(word.substr(at, c.bytes))) {
      // If an unknown token is waiting to be added, it stands for a character before these bytes.
      // It is still added after them, as in Hugging Face tokenizers.
    } else if (unknown_ >= 0) {
      position->in_place = false;
      if (unknown_before && !fuse_unknown_) add(unknown_, at);
      unknown_before = true;
    } else {
      position->in_place = false;
      scratch->dropped_bytes += spell_out_ ? 1 : c.bytes;
    }
    at += c.bytes;
  }
  if (at < word.size()) return false;
  if (unknown_before) add(unknown_, at);
  return true;
}

absl::Status Bpe::CheckSymbols(size_t symbols, const EncodeStop& stop,
                               const std::vector<TokenId>& out) const {
  if (symbols / max_symbols_ > stop.TokensLeft(out.size())) return stop.TooManyTokens();
  if (symbols <= kMaxRun) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the text has more than ", kMaxRun,
      " characters in a row that may merge with each other, for example one letter repeated"));
}

absl::Status Bpe::MergePart(absl::Span<const TokenId> part, absl::string_view text,
                            EncodeStop* stop, Scratch* scratch, std::vector<TokenId>* out) const {
  RETURN_IF_ERROR(CheckSymbols(part.size(), *stop, *out));
  if (part.size() > 1 && !text.empty() && text.size() <= longest_word_) {
    if (const auto known = words_.find(text); known != words_.end() && known->second.merged) {
      out->push_back(known->second.id);
      RETURN_IF_ERROR(stop->Worked(part.size()));
      return stop->CheckTokens(out->size());
    }
  }
  RETURN_IF_ERROR(merges_.Apply(part, stop, &scratch->merging, out));
  return stop->CheckTokens(out->size());
}

absl::Status Bpe::Merge(absl::string_view word, EncodeStop* stop, Scratch* scratch,
                        std::vector<TokenId>* out) const {
  auto& symbols = scratch->symbols;
  auto& begins = scratch->begins;
  symbols.clear();
  begins.clear();
  Position position;
  bool whole = TakeApart(word, kSymbolsAtOnce, &position, scratch);
  if (whole && symbols.empty()) return stop->Worked(word.size());  // all of it was dropped
  if (whole && symbols.size() <= kLongWord) return MergePart(symbols, {}, stop, scratch, out);
  size_t end = 1;  // Symbols before it belong to one part.
  while (true) {
    size_t begin = 0;
    for (; end < symbols.size() + whole; ++end) {
      if (end < symbols.size() && merges_.CanJoin(symbols[end - 1], symbols[end])) continue;
      const size_t text_end = end < symbols.size() ? begins[end] : word.size();
      const absl::string_view text = word.substr(begins[begin], text_end - begins[begin]);
      RETURN_IF_ERROR(MergePart(absl::MakeConstSpan(symbols).subspan(begin, end - begin),
                                position.in_place ? text : "", stop, scratch, out));
      begin = end;
    }
    if (whole) return absl::OkStatus();
    symbols.erase(symbols.begin(), symbols.begin() + static_cast<ptrdiff_t>(begin));
    begins.erase(begins.begin(), begins.begin() + static_cast<ptrdiff_t>(begin));
    end -= begin;
    RETURN_IF_ERROR(CheckSymbols(symbols.size(), *stop, *out));
    whole = TakeApart(word, symbols.size() + kSymbolsAtOnce, &position, scratch);
  }
}

}  // namespace baton
