#include "kernels/fake/fake_backend.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// The fake backend computes no numbers. Instead, each row of a tensor carries this state in its
// first 16 bytes.
struct RowState {
  TokenId token;
  uint32_t attended;  // 1 if Attention computed `hash`, else 0
  uint64_t hash;
};
constexpr int kRowFloats = sizeof(RowState) / sizeof(float);

RowState Get(const Tensor& tensor, int row) {
  RowState state;
  std::memcpy(&state, static_cast<const float*>(tensor.data) + size_t(row) * tensor.stride,
              sizeof(state));
  return state;
}

void Put(const Tensor& tensor, int row, const RowState& state) {
  std::memcpy(static_cast<float*>(tensor.data) + size_t(row) * tensor.stride, &state,
              sizeof(state));
}

absl::Status CheckWidth(const Tensor& tensor) {
  if (tensor.cols >= kRowFloats) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a tensor of ", tensor.cols, " columns; the fake backend needs ", kRowFloats));
}

absl::Status CopyRows(const Tensor& in, const Tensor& out) {
  RETURN_IF_ERROR(CheckWidth(in));
  RETURN_IF_ERROR(CheckWidth(out));
  for (int row = 0; row < out.rows; ++row) Put(out, row, Get(in, row));
  return absl::OkStatus();
}

// The finaliser of MurmurHash3 (Appleby): every bit of the input changes every bit of the output.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCD;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53;
  return x ^ (x >> 33);
}

uint64_t Fold(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 29);
}

// `frequency` is the first entry of the rotary table. It is 1 unless rope scaling changed it.
uint64_t SlotSeed(TokenId token, int position, int layer, float frequency) {
  const uint64_t table = std::bit_cast<uint32_t>(frequency) - std::bit_cast<uint32_t>(1.0f);
  return Mix(Mix((uint64_t(uint32_t(token)) << 32 | uint32_t(position)) + 1) + layer +
             (table << 32));
}

// StoreTail and LoadTail copy the last 0 to 7 bytes of a part. They are much faster than a memcpy
// whose length the compiler does not know.
void StoreTail(uint64_t word, std::byte* out, size_t bytes) {
  if (bytes & 4) {
    std::memcpy(out, &word, 4);
    word >>= 32;
    out += 4;
  }
  for (bytes &= 3; bytes > 0; --bytes, word >>= 8) *out++ = static_cast<std::byte>(word);
}

uint64_t LoadTail(const std::byte* in, size_t bytes) {
  uint64_t word = 0;
  int bits = 0;
  if (bytes & 4) {
    std::memcpy(&word, in, 4);
    bits = 32;
    in += 4;
  }
  for (bytes &= 3; bytes > 0; --bytes, bits += 8) word |= uint64_t(*in++) << bits;
  return word;
}

// Fills the part of a token's slot that belongs to one plane (K or V) of one head. `part` is the
// index of this part: all heads of K come first, then all heads of V.
void FillPart(uint64_t seed, int part, std::byte* out, size_t bytes) {
  uint64_t word = seed + uint64_t(part) * 0xD1342543DE82EF95;
  const auto next = [&word] {
    word = word * 0x5851F42D4C957F2D + 0x14057B7EF767814F;
    return word ^ (word >> 32);
  };
  for (; bytes >= 8; bytes -= 8, out += 8) {
    const uint64_t value = next();
    std::memcpy(out, &value, 8);
  }
  if (bytes > 0) StoreTail(next(), out, bytes);
}

// Returns a hash of one part of the slot at `position`. The hash of a context is the sum of the
// hashes of all parts of its slots. So the order in which the slots are read does not matter, and a
// row's hash continues from the row before it. Each word is hashed with a key of its own place:
// - equal bytes at another place have another hash;
// - one wrong word always changes the sum, because Fold maps different words to different hashes;
// - several wrong words cancel each other out with a probability of 2^-64.
// `Bytes` is size_t, or a constant of it, for which the compiler makes a faster function.
template <class Bytes>
uint64_t HashPart(int position, int part, const std::byte* in, Bytes bytes) {
  uint64_t key = uint64_t(position) * 0xD6E8FEB86659FD93 + uint64_t(part) * 0xA0761D6478BD642F;
  uint64_t hash = 0;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, in + i, 8);
    hash += Fold(key, word);
    key += 0xE7037ED1A0B428DB;
  }
  if (i < bytes) hash += Fold(key, LoadTail(in + i, bytes - i));
  return hash;
}

// Returns the sum of the hashes of one part of the slots at positions [from, to) of one block. `in`
// is the part of the first of these slots.
template <class Bytes>
uint64_t HashParts(int from, int to, int part, const std::byte* in, Bytes bytes) {
  uint64_t hash = 0;
  for (int position = from; position < to; ++position, in += bytes) {
    hash += HashPart(position, part, in, bytes);
  }
  return hash;
}

// Returns the sum of the hashes of the slots at positions [from, to) of a sequence, in one layer.
uint64_t HashSlots(const KvView& kv, absl::Span<const BlockId> blocks, int layer, int from,
                   int to) {
  // Bytes of a part in the smallest model (FakeModelConfig) with KV of 16 bits, which simulations
  // use.
  constexpr std::integral_constant<size_t, 4> kSmallest;
  const KvLayout& layout = kv.layout;
  const size_t bytes = layout.TokenBytes();
  uint64_t hash = 0;
  while (from < to) {
    const int index = from / layout.block_tokens;
    const int first = index * layout.block_tokens;  // position of the block's first slot
    const int end = std::min(to, first + layout.block_tokens);
    const std::byte* part_data = kv.data + layout.LayerOffset(blocks[index], layer);
    for (int part = 0; part < 2 * layout.kv_heads; ++part, part_data += layout.HeadBytes()) {
      const std::byte* in = part_data + (from - first) * bytes;
      hash += bytes == kSmallest ? HashParts(from, end, part, in, kSmallest)
                                 : HashParts(from, end, part, in, bytes);
    }
    from = end;
  }
  return hash;
}

uint64_t AddLayer(uint64_t hash, uint64_t attention) { return Mix(hash * 31 + attention); }

void FillLogits(uint64_t hash, absl::Span<float> out) {
  uint64_t x = hash;
  for (float& logit : out) {
    x = x * 0x5851F42D4C957F2D + 0x14057B7EF767814F;
    logit = static_cast<float>(static_cast<int32_t>(x >> 40)) * 0x1p-21f - 4;  // in [-4, 4)
  }
  out[hash % out.size()] = 8;
}

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(FakeBackendOptions options) : options_(std::move(options)) {}

  std::string numerics_id() const override { return "fake-v2"; }
  std::string Describe() const override { return "fake: no maths, no threads"; }
  absl::StatusOr<Matrix> LoadWeight(const Matrix& host) override { return host; }

  absl::StatusOr<Tensor> Allocate(int rows, int cols) override {
    memory_.push_back(std::make_unique<float[]>(size_t(rows) * cols));
    return Tensor{memory_.back().get(), rows, cols, cols};
  }

  absl::Status Embed(const EmbedArgs& args) override {
    RETURN_IF_ERROR(CheckWidth(args.out));
    for (size_t row = 0; row < args.tokens.size(); ++row) {
      Put(args.out, row, {.token = args.tokens[row], .attended = 0, .hash = 0});
    }
    Spend(options_.per_step + options_.per_row * args.tokens.size());
    return absl::OkStatus();
  }

  absl::Status RmsNorm(const RmsNormArgs& args) override { return CopyRows(args.in, args.out); }

  absl::Status Gemm(const GemmArgs& args) override {
    if (!args.accumulate) return CopyRows(args.in, args.out);
    // This GEMM adds its result to the residual. It changes the hash of a row only if Attention
    // computed the input row.
    for (int row = 0; row < args.out.rows; ++row) {
      const RowState in = Get(args.in, row);
      if (in.attended == 0) continue;
      RowState out = Get(args.out, row);
      out.hash = AddLayer(out.hash, in.hash);
      Put(args.out, row, out);
    }
    return absl::OkStatus();
  }

  absl::Status RopeAndWriteKv(const RopeAndWriteKvArgs& args) override {
    RETURN_IF_ERROR(CheckWidth(args.k));
    const KvLayout& layout = args.kv.layout;
    int64_t attended = 0;
    for (size_t s = 0; s < args.sequences.size(); ++s) {
      const SequenceRows& sequence = args.sequences[s];
      const Rope& rope = args.ropes[args.ropes.size() == 1 ? 0 : s];
      for (int i = 0; i < sequence.rows; ++i) {
        const int position = sequence.first_position + i;
        const BlockId block = sequence.blocks[position / layout.block_tokens];
        const size_t in_head = position % layout.block_tokens * layout.TokenBytes();
        const uint64_t seed = SlotSeed(Get(args.k, sequence.first_row + i).token, position,
                                       args.layer, rope.inverse_frequency.front());
        for (int part = 0; part < 2 * layout.kv_heads; ++part) {
          const auto plane = part < layout.kv_heads ? KvLayout::kKeys : KvLayout::kValues;
          FillPart(seed, part,
                   args.kv.data + in_head +
                       layout.HeadOffset(block, args.layer, plane, part % layout.kv_heads),
                   layout.TokenBytes());
        }
        attended += position + 1;
      }
    }
    if (args.layer == 0) Spend(options_.per_attended_token * attended);
    return absl::OkStatus();
  }

  absl::Status Attention(const AttentionArgs& args) override {
    RETURN_IF_ERROR(CheckWidth(args.out));
    for (const SequenceRows& sequence : args.sequences) {
      const auto hash_slots = [&](int from, int to) {
        return HashSlots(args.kv, sequence.blocks, args.layer, from, to);
      };
      // `hash` is that of the slots from `seen` up to the row's own.
      const int end = sequence.first_position + sequence.rows;
      const auto first_seen = [&](int position) {
        return args.window > 0 ? std::max(0, position + 1 - args.window) : 0;
      };
      int seen = first_seen(sequence.first_position);
      uint64_t hash = hash_slots(seen, sequence.first_position);
      for (int position = sequence.first_position; position < end; ++position) {
        hash += hash_slots(position, position + 1);
        for (; seen < first_seen(position); ++seen) hash -= hash_slots(seen, seen + 1);
        const int row = sequence.first_row + position - sequence.first_position;
        Put(args.out, row, {.token = Get(args.q, row).token, .attended = 1, .hash = hash});
      }
    }
    return absl::OkStatus();
  }

  absl::Status SiluMul(const SiluMulArgs& args) override { return CopyRows(args.gate, args.out); }

  absl::Status Logits(const LogitsArgs& args) override {
    if (args.rows.empty()) return absl::OkStatus();
    const size_t vocab = args.out.size() / args.rows.size();
    for (size_t i = 0; i < args.rows.size(); ++i) {
      const RowState row = Get(args.in, args.rows[i]);
      const absl::Span<float> out = args.out.subspan(i * vocab, vocab);
      FillLogits(row.hash, out);
      if (row.token == options_.nan_after) out[0] = std::numeric_limits<float>::quiet_NaN();
    }
    return absl::OkStatus();
  }

  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  void Spend(absl::Duration duration) {
    if (options_.spend) options_.spend(duration);
  }

  const FakeBackendOptions options_;
  std::vector<std::unique_ptr<float[]>> memory_;
};

}  // namespace

std::unique_ptr<Backend> CreateFakeBackend(FakeBackendOptions options) {
  return std::make_unique<FakeBackend>(std::move(options));
}

FakeOracle::FakeOracle(const KvLayout& layout, float first_frequency)
    : layout_(layout),
      first_frequency_(first_frequency),
      attention_(layout.layers, 0),
      slot_(layout.TokenBytes()) {}

void FakeOracle::Append(TokenId token) {
  for (int layer = 0; layer < layout_.layers; ++layer) {
    const uint64_t seed = SlotSeed(token, position_, layer, first_frequency_);
    for (int part = 0; part < 2 * layout_.kv_heads; ++part) {
      FillPart(seed, part, slot_.data(), slot_.size());
      attention_[layer] += HashPart(position_, part, slot_.data(), slot_.size());
    }
  }
  ++position_;
}

void FakeOracle::Logits(absl::Span<float> out) const {
  uint64_t hash = 0;
  for (const uint64_t attention : attention_) hash = AddLayer(hash, attention);
  FillLogits(hash, out);
}

TokenId FakeOracle::Next(int vocab) const {
  uint64_t hash = 0;
  for (const uint64_t attention : attention_) hash = AddLayer(hash, attention);
  return static_cast<TokenId>(hash % vocab);
}

std::vector<TokenId> FakeContinuation(const KvLayout& layout, const std::vector<TokenId>& tokens,
                                      int vocab, int count) {
  FakeOracle oracle(layout);
  for (const TokenId token : tokens) oracle.Append(token);
  std::vector<TokenId> continuation;
  for (int i = 0; i < count; ++i) {
    continuation.push_back(oracle.Next(vocab));
    oracle.Append(continuation.back());
  }
  return continuation;
}

}  // namespace baton
