#include "common/tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

// Up to here scanning all pairs for the best one beats the heap.
constexpr size_t kShortWord = 40;

uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

absl::string_view Absl(std::string_view view) { return {view.data(), view.size()}; }

// Bytes that no UTF-8 text contains need no token.
bool OccursInUtf8(int byte) { return byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4); }

absl::Status CheckOptions(const JsonNode& model) {
  if (const auto type = model.StringOr("type", "BPE"); !type.ok()) {
    return type.status();
  } else if (*type != "BPE") {
    return model.Get("type")->Unsupported("\"BPE\"");
  }
  const auto dropout = model.Find("dropout");
  if (!dropout.ok()) return dropout.status();
  if (*dropout && (*dropout)->Describe() != "0" && (*dropout)->Describe() != "0.0") {
    return (*dropout)->Unsupported("null or 0: the same text gives the same tokens");
  }
  const auto byte_fallback = model.BoolOr("byte_fallback", false);
  if (!byte_fallback.ok()) return byte_fallback.status();
  if (*byte_fallback) return model.Get("byte_fallback")->Unsupported("false");
  for (absl::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto value = model.StringOr(affix, "");
    if (!value.ok()) return value.status();
    if (!value->empty()) return model.Get(affix)->Unsupported("null or \"\"");
  }
  return absl::OkStatus();
}

absl::Status ReadVocabulary(const JsonNode& vocab, Vocabulary* vocabulary) {
  simdjson::dom::object tokens;
  if (vocab.element().get(tokens) != simdjson::SUCCESS) {
    return vocab.Error(
        absl::StrCat("found ", vocab.Describe(), ", expected an object of token: id"));
  }
  vocabulary->Reserve(tokens.size());
  for (const auto& [key, value] : tokens) {
    int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= kMaxVocabSize) {
      return vocab.Error(absl::StrCat("token \"", Absl(key), "\" has id ",
                                      JsonNode::Describe(value), ", expected an integer from 0 to ",
                                      kMaxVocabSize - 1));
    }
    if (vocabulary->Find(Absl(key))) {
      return vocab.Error(absl::StrCat("token \"", Absl(key), "\" stands there twice"));
    }
    const absl::Status added = vocabulary->Add(Absl(key), static_cast<TokenId>(id));
    if (!added.ok()) return vocab.Error(added.message());
  }
  return absl::OkStatus();
}

// The two sides of a merge, which files spell "left right" or ["left", "right"].
bool SplitMerge(const simdjson::dom::element& merge, absl::string_view* left,
                absl::string_view* right) {
  std::string_view text;
  if (merge.get(text) == simdjson::SUCCESS) {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      return false;
    *left = Absl(text.substr(0, space));
    *right = Absl(text.substr(space + 1));
    return true;
  }
  simdjson::dom::array pair;
  std::string_view first, second;
  if (merge.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
      pair.at(0).get(first) != simdjson::SUCCESS || pair.at(1).get(second) != simdjson::SUCCESS) {
    return false;
  }
  *left = Absl(first);
  *right = Absl(second);
  return true;
}

absl::Status ReadMerges(const JsonNode& node, const Vocabulary& vocabulary, BpeMerges* merges) {
  simdjson::dom::array array;
  if (node.element().get(array) != simdjson::SUCCESS) {
    return node.Error(absl::StrCat("found ", node.Describe(), ", expected an array of merges"));
  }
  merges->Reserve(array.size());
  std::string both;
  size_t index = 0;
  for (const simdjson::dom::element element : array) {
    const std::string suffix = absl::StrCat("[", index++, "]");
    absl::string_view left, right;
    if (!SplitMerge(element, &left, &right)) {
      return node.ErrorAt(suffix,
                          absl::StrCat("found ", JsonNode::Describe(element),
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
                                 "\" is no token of the vocabulary"));
      }
      ids[i] = *id;
    }
    merges->Add(ids[0], ids[1], ids[2]);
  }
  return absl::OkStatus();
}

}  // namespace

void BpeMerges::Add(TokenId left, TokenId right, TokenId merged) {
  merges_[PairKey(left, right)] = {next_rank_++, merged};
}

const BpeMerges::Merge* BpeMerges::Find(TokenId left, TokenId right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeMerges::Apply(Scratch* scratch, std::vector<TokenId>* out) const {
  if (scratch->word.size() > kShortWord) {
    ApplyLong(scratch, out);
    return;
  }
  ApplyShort(&scratch->word);
  out->insert(out->end(), scratch->word.begin(), scratch->word.end());
}

void BpeMerges::ApplyShort(std::vector<TokenId>* word) const {
  constexpr Merge kNone = {std::numeric_limits<uint32_t>::max(), -1};
  TokenId* const ids = word->data();
  int size = static_cast<int>(word->size());
  Merge pairs[kShortWord];  // pairs[i]: of ids[i] and ids[i + 1]
  const auto look_up = [&](int i) {
    const Merge* merge = Find(ids[i], ids[i + 1]);
    pairs[i] = merge != nullptr ? *merge : kNone;
  };
  for (int i = 0; i + 1 < size; ++i) look_up(i);
  while (size > 1) {
    int best = 0;
    for (int i = 1; i + 1 < size; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].merged < 0) break;
    ids[best] = pairs[best].merged;
    std::copy(ids + best + 2, ids + size, ids + best + 1);
    std::copy(pairs + best + 1, pairs + size - 1, pairs + best);
    --size;
    if (best + 1 < size) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  word->resize(size);
}

void BpeMerges::ApplyLong(Scratch* scratch, std::vector<TokenId>* out) const {
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  symbols.clear();
  heap.clear();
  const int32_t size = static_cast<int32_t>(scratch->word.size());
  for (int32_t i = 0; i < size; ++i) {
    symbols.push_back({scratch->word[i], i - 1, i + 1 < size ? i + 1 : -1});
  }
  // Smallest first: rank, then position. An entry goes stale when either of its symbols is merged;
  // the ids no longer lead to the same token then, since its text is longer.
  const auto after = std::greater<>();
  const auto entry_of = [&](int32_t left) -> std::pair<uint64_t, TokenId> {
    const int32_t right = symbols[left].next;
    const Merge* merge = right < 0 ? nullptr : Find(symbols[left].id, symbols[right].id);
    if (merge == nullptr) return {0, -1};
    return {static_cast<uint64_t>(merge->rank) << 32 | static_cast<uint32_t>(left), merge->merged};
  };
  const auto push = [&](int32_t left) {
    const auto entry = entry_of(left);
    if (entry.second < 0) return;
    heap.push_back(entry);
    std::push_heap(heap.begin(), heap.end(), after);
  };
  for (int32_t i = 0; i + 1 < size; ++i) {
    const auto entry = entry_of(i);
    if (entry.second >= 0) heap.push_back(entry);
  }
  std::make_heap(heap.begin(), heap.end(), after);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), after);
    const auto top = heap.back();
    heap.pop_back();
    const int32_t left = static_cast<int32_t>(top.first & 0xFFFFFFFF);
    if (symbols[left].id < 0 || entry_of(left) != top) continue;
    auto& symbol = symbols[left];
    auto& absorbed = symbols[symbol.next];
    symbol.id = top.second;
    symbol.next = absorbed.next;
    absorbed.id = -1;
    if (symbol.next >= 0) symbols[symbol.next].previous = left;
    push(left);
    if (symbol.previous >= 0) push(symbol.previous);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) out->push_back(symbols[i].id);
}

absl::StatusOr<ByteBpe> ByteBpe::FromJson(const JsonNode& model, Vocabulary* vocabulary) {
  if (absl::Status options = CheckOptions(model); !options.ok()) return options;
  const auto ignore_merges = model.BoolOr("ignore_merges", false);
  if (!ignore_merges.ok()) return ignore_merges.status();
  const auto vocab = model.Get("vocab");
  if (!vocab.ok()) return vocab.status();
  if (absl::Status read = ReadVocabulary(*vocab, vocabulary); !read.ok()) return read;
  const auto merges = model.Get("merges");
  if (!merges.ok()) return merges.status();

  ByteBpe bpe;
  if (absl::Status read = ReadMerges(*merges, *vocabulary, &bpe.merges_); !read.ok()) return read;
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    AppendUtf8(ByteToChar(static_cast<unsigned char>(byte)), &spelled);
    const std::optional<TokenId> id = vocabulary->Find(spelled);
    if (!id && OccursInUtf8(byte)) {
      return vocab->Error(
          absl::StrCat("has no token \"", spelled, "\" for byte ", byte,
                       "; supported: vocabularies with a token for each byte of UTF-8"));
    }
    bpe.byte_ids_[byte] = id.value_or(-1);
  }

  BpeMerges::Scratch scratch;
  std::vector<TokenId> merged;
  for (TokenId id = 0; id < vocabulary->size(); ++id) {
    const std::optional<std::string> bytes = BytesOfText(vocabulary->Text(id));
    if (!bytes || bytes->empty() || FindInvalidUtf8(*bytes)) continue;
    if (!*ignore_merges) {
      merged.clear();
      bpe.Encode(*bytes, &scratch, &merged);
      if (merged.size() != 1) continue;
    }
    bpe.words_.emplace(*bytes, id);
  }
  return bpe;
}

void ByteBpe::Encode(absl::string_view word, BpeMerges::Scratch* scratch,
                     std::vector<TokenId>* out) const {
  if (const auto known = words_.find(word); known != words_.end()) {
    out->push_back(known->second);
    return;
  }
  scratch->word.clear();
  for (const char c : word) scratch->word.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  merges_.Apply(scratch, out);
}

}  // namespace baton
