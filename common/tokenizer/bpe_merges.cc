#include "common/tokenizer/bpe_merges.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// Up to this number of symbols, scanning all pairs for the best one is faster than using the heap.
constexpr size_t kShortWord = 40;

}  // namespace

void BpeMerges::FindJoins(absl::Span<const TokenId> initial,
                          absl::FunctionRef<size_t(TokenId)> length) {
  struct Product {
    size_t length;
    TokenId left, right, merged;
  };
  std::vector<Product> products;
  TokenId highest = -1;
  for (const TokenId id : initial) highest = std::max(highest, id);
  for (const auto& [key, merge] : merges_) {
    const auto left = static_cast<TokenId>(key >> 32);
    const auto right = static_cast<TokenId>(key & 0xFFFFFFFF);
    products.push_back({length(merge.merged), left, right, merge.merged});
    highest = std::max({highest, left, right, merge.merged});
  }
  // The initial symbols that a token can begin and end with. Most tokens have one first symbol and
  // one last symbol. Only a token whose text contains the name of another initial symbol, such as
  // "<0x41>", may have more.
  using Symbols = absl::InlinedVector<TokenId, 2>;
  std::vector<Symbols> firsts(highest + 1), lasts(highest + 1);
  for (const TokenId id : initial) {
    firsts[id] = {id};
    lasts[id] = {id};
  }
  const auto add = [](const Symbols& from, Symbols* to) {
    for (const TokenId id : from) {
      if (!absl::c_linear_search(*to, id)) to->push_back(id);
    }
  };
  absl::c_sort(products, [](const Product& a, const Product& b) { return a.length < b.length; });
  joins_.clear();
  for (const Product& product : products) {
    // Skips merges whose left or right token never occurs in a word.
    if (firsts[product.left].empty() || firsts[product.right].empty()) continue;
    add(firsts[product.left], &firsts[product.merged]);
    add(lasts[product.right], &lasts[product.merged]);
    for (const TokenId left : lasts[product.left]) {
      for (const TokenId right : firsts[product.right]) joins_.insert(PairKey(left, right));
    }
  }
}

void BpeMerges::Add(TokenId left, TokenId right, TokenId merged) {
  merges_[PairKey(left, right)] = {next_rank_++, merged};
}

const BpeMerges::Merge* BpeMerges::Find(TokenId left, TokenId right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

absl::Status BpeMerges::Apply(absl::Span<const TokenId> word, EncodeStop* stop, Scratch* scratch,
                              std::vector<TokenId>* out) const {
  if (word.size() > kShortWord) return ApplyLong(word, stop, scratch, out);
  RETURN_IF_ERROR(stop->Worked(word.size()));
  ApplyShort(word, out);
  return absl::OkStatus();
}

void BpeMerges::ApplyShort(absl::Span<const TokenId> word, std::vector<TokenId>* out) const {
  constexpr Merge kNone = {std::numeric_limits<uint32_t>::max(), -1};
  TokenId ids[kShortWord];
  std::copy(word.begin(), word.end(), ids);
  int size = static_cast<int>(word.size());
  Merge pairs[kShortWord];  // pairs[i] is the merge of ids[i] and ids[i + 1]
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
  out->insert(out->end(), ids, ids + size);
}

absl::Status BpeMerges::ApplyLong(absl::Span<const TokenId> word, EncodeStop* stop,
                                  Scratch* scratch, std::vector<TokenId>* out) const {
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  symbols.clear();
  heap.clear();
  symbols.reserve(word.size());
  heap.reserve(word.size());
  const int32_t size = static_cast<int32_t>(word.size());
  for (int32_t i = 0; i < size; ++i) {
    RETURN_IF_ERROR(stop->Worked(1));
    symbols.push_back({word[i], i - 1, i + 1 < size ? i + 1 : -1});
  }
  // The heap gives the lowest rank first, and the leftmost position among equal ranks. An entry
  // becomes stale when one of its two symbols is merged with another symbol. A stale entry can be
  // recognised: the pair at its position has a longer text now, so it does not give the same token.
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
    RETURN_IF_ERROR(stop->Worked(1));
    const auto entry = entry_of(i);
    if (entry.second >= 0) heap.push_back(entry);
  }
  std::make_heap(heap.begin(), heap.end(), after);
  while (!heap.empty()) {
    RETURN_IF_ERROR(stop->Worked(1));
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
  return absl::OkStatus();
}

}  // namespace baton
