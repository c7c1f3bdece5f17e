#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/conformance/backend_conformance.h"
#include "kernels/conformance/conformance_bench.h"

namespace baton {
namespace {

// A KV pool with the blocks of some sequences, in random order. Slots that were never written hold
// NaN.
struct Scene {
  KvLayout layout;
  int heads = 0;
  std::vector<std::vector<BlockId>> blocks;
  std::shared_ptr<std::byte> pool;
  size_t pool_bytes = 0;

  KvView view() const { return {pool.get(), layout}; }
};

Scene MakeScene(Bench& bench, KvLayout layout, int group, const std::vector<int>& lengths) {
  Scene scene{layout, layout.kv_heads * group, {}, nullptr, 0};
  int total = 0;
  for (const int length : lengths) total += layout.BlocksFor(length);
  std::vector<BlockId> order(total + 3);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), bench.random());
  size_t next = 0;
  for (const int length : lengths) {
    const int count = layout.BlocksFor(length);
    scene.blocks.emplace_back(order.begin() + next, order.begin() + next + count);
    next += count;
  }
  scene.pool_bytes = layout.BlockBytes() * order.size();
  scene.pool = bench.Memory(std::vector<std::byte>(scene.pool_bytes, std::byte{0xff}));
  return scene;
}

std::vector<float> Frequencies(int head_dim, float theta = 10000) {
  std::vector<float> out;
  for (int i = 0; i < head_dim; i += 2) {
    out.push_back(std::pow(theta, -static_cast<float>(i) / head_dim));
  }
  return out;
}

TEST_P(BackendConformanceTest, RopeRotatesAndWritesNothingButItsOwnSlots) {
  Bench bench(GetParam(), 2, 7);
  int round = 0;
  for (const int head_dim : {2, 6, 16, 24, 64, 128}) {
    const DType type = kTypes[round++ % 3];
    const int group = bench.Pick(1, 4), block_tokens = bench.Pick(1, 20);
    const KvLayout layout{3, bench.Pick(1, 3), head_dim, block_tokens, type};
    Scene scene = MakeScene(bench, layout, group, {40, 1010, 1});
    // Three sequences: rows 0 to 2 begin at position 37, rows 4 and 5 at position 1000, and row 6
    // is at position 0. Row 3 belongs to no sequence: it is a padding row.
    const std::vector<SequenceRows> sequences = {
        {0, 3, 37, scene.blocks[0]}, {4, 2, 1000, scene.blocks[1]}, {6, 1, 0, scene.blocks[2]}};
    const int cols = layout.kv_heads * head_dim;
    const auto q = bench.Activation(7, scene.heads * head_dim);
    const auto k = bench.Activation(7, cols), v = bench.Activation(7, cols);
    // Each sequence has its own rope (rotary embedding), or all sequences share one. For every
    // third head_dim, only the first elements of each head are rotated.
    const int pairs = round % 3 == 1 ? (head_dim + 2) / 4 : head_dim / 2;
    const auto first = Frequencies(2 * pairs), second = Frequencies(2 * pairs, 77);
    std::vector<Rope> ropes = {{first, 1}, {second, 1.2f}, {first, 0.7f}};
    if (round % 2 == 0) ropes.resize(1);
    ASSERT_TRUE(
        bench.backend()
            .RopeAndWriteKv({q.device, k.device, v.device, ropes, 1, sequences, scene.view()})
            .ok());
    EXPECT_TRUE(SameBits(bench.Read(k.device), k.values));

    auto pool = bench.Bytes(scene.pool.get(), scene.pool_bytes);
    std::vector<double> expected(q.values.begin(), q.values.end()), tolerance(expected.size(), 0.0);
    const auto rotated = [&](const Rope& rope, const HostTensor& t, int row, int head, int i,
                             int position) {
      const double x = t(row, head * head_dim + i);
      if (i >= 2 * pairs) return x;
      const double angle = static_cast<float>(position) * rope.inverse_frequency[i % pairs];
      const double partner = t(row, head * head_dim + (i + pairs) % (2 * pairs));
      return rope.scale *
             (x * std::cos(angle) + (i < pairs ? -partner : partner) * std::sin(angle));
    };
    for (size_t s = 0; s < sequences.size(); ++s) {
      const SequenceRows& sequence = sequences[s];
      const Rope& rope = ropes[ropes.size() == 1 ? 0 : s];
      for (int i = 0; i < sequence.rows; ++i) {
        const int row = sequence.first_row + i, position = sequence.first_position + i;
        for (int c = 0; c < q.cols; ++c) {
          const size_t at = static_cast<size_t>(row) * q.cols + c;
          expected[at] = rotated(rope, q, row, c / head_dim, c % head_dim, position);
          tolerance[at] = c % head_dim < 2 * pairs ? 2e-6 + bench.Slack(expected[at]) : 0;
        }
        for (int c = 0; c < cols; ++c) {
          const int head = c / head_dim, element = c % head_dim;
          const auto at = [&](KvLayout::Plane plane) {
            return pool.data() +
                   layout.HeadOffset(sequence.blocks[position / block_tokens], 1, plane, head) +
                   position % block_tokens * layout.TokenBytes() + element * DTypeBytes(type);
          };
          const double key = rotated(rope, k, row, head, element, position);
          EXPECT_NEAR(FromBits(type, at(KvLayout::kKeys)), key,
                      std::fabs(key) * Rounding(type) + 2e-6);
          const auto value = Encode(type, {v(row, c)});
          EXPECT_EQ(std::memcmp(at(KvLayout::kValues), value.data(), value.size()), 0)
              << DTypeName(type) << " of " << v(row, c);
          std::memset(at(KvLayout::kKeys), 0xff, DTypeBytes(type));
          std::memset(at(KvLayout::kValues), 0xff, DTypeBytes(type));
        }
      }
    }
    EXPECT_TRUE(Near(bench.Read(q.device), expected, tolerance)) << head_dim;
    EXPECT_TRUE(
        std::all_of(pool.begin(), pool.end(), [](std::byte b) { return b == std::byte{255}; }));
  }
}

// Returns K or V of whole sequences, read from the pool. Each sequence has a vector
// [position][kv_head][element].
std::vector<std::vector<float>> ReadPlane(Bench& bench, const Scene& scene, int layer,
                                          KvLayout::Plane plane, const std::vector<int>& lengths) {
  const KvLayout& layout = scene.layout;
  const auto pool = bench.Bytes(scene.pool.get(), scene.pool_bytes);
  std::vector<std::vector<float>> out;
  for (size_t s = 0; s < lengths.size(); ++s) {
    out.emplace_back();
    for (int position = 0; position < lengths[s]; ++position) {
      for (int head = 0; head < layout.kv_heads; ++head) {
        for (int i = 0; i < layout.head_dim; ++i) {
          out.back().push_back(FromBits(
              layout.type, pool.data() +
                               layout.HeadOffset(scene.blocks[s][position / layout.block_tokens],
                                                 layer, plane, head) +
                               position % layout.block_tokens * layout.TokenBytes() +
                               i * DTypeBytes(layout.type)));
        }
      }
    }
  }
  return out;
}

// Some whole sequences with their q, k and v. Each position of a sequence is one row.
struct Story {
  Scene scene;
  std::vector<int> lengths, first_row;
  HostTensor q, k, v;  // q is already rotated
  Tensor unused;       // passed to RopeAndWriteKv as the q to rotate
  std::vector<float> frequencies;
  int window;
  float soft_cap;
};

Story MakeStory(Bench& bench, const KvLayout& layout, int group, const std::vector<int>& lengths,
                int window = 0, float soft_cap = 0) {
  Story story{
      MakeScene(bench, layout, group, lengths), lengths, {}, {}, {}, {}, {}, {}, window, soft_cap};
  int rows = 0;
  for (const int length : lengths) {
    story.first_row.push_back(rows);
    rows += length;
  }
  const int cols = layout.kv_heads * layout.head_dim;
  story.q = bench.Activation(rows, group * cols);
  story.k = bench.Activation(rows, cols);
  story.v = bench.Activation(rows, cols);
  story.unused = bench.Activation(rows, cols).device;
  story.frequencies = Frequencies(layout.head_dim);
  return story;
}

// Positions [begin, end) of one sequence. RunStep computes several such parts in one step: it
// writes their K and V, then computes their attention.
struct Part {
  int sequence, begin, end;
};
void RunStep(Bench& bench, const Story& story, const std::vector<Part>& parts, const Tensor& out) {
  std::vector<SequenceRows> sequences;
  for (const Part& part : parts) {
    sequences.push_back({story.first_row[part.sequence] + part.begin, part.end - part.begin,
                         part.begin, story.scene.blocks[part.sequence]});
  }
  const KvView kv = story.scene.view();
  const Rope rope{story.frequencies, 1};
  ASSERT_TRUE(bench.backend()
                  .RopeAndWriteKv(
                      {story.unused, story.k.device, story.v.device, {&rope, 1}, 1, sequences, kv})
                  .ok());
  ASSERT_TRUE(bench.backend()
                  .Attention({story.q.device, story.scene.heads,
                              1 / std::sqrt(static_cast<float>(story.scene.layout.head_dim)),
                              story.window, 1, sequences, kv, out, story.soft_cap})
                  .ok());
  ASSERT_TRUE(bench.backend().Synchronize().ok());  // until here, the views must stay valid
}

TEST_P(BackendConformanceTest, AttentionMatchesDoubleArithmetic) {
  Bench bench(GetParam(), 3, 8);
  for (int round = 0; round < 27; ++round) {
    const int dims[] = {8, 16, 24, 64, 80, 128, 256, 2, 34};
    const int windows[] = {0, bench.Pick(1, 20), bench.Pick(40, 140)};
    const KvLayout layout{2, bench.Pick(1, 3), dims[round % 9], bench.Pick(1, 20),
                          kTypes[round % 3]};
    const int group = round % 4 == 3 ? 8 : bench.Pick(1, 4);
    const std::vector<int> lengths = {bench.Pick(1, 90), bench.Pick(1, 9), bench.Pick(60, 140)};
    const float soft_cap = (round + round / 9) % 3 == 1 ? bench.Pick(5, 30) * 0.1f : 0;
    const Story story = MakeStory(bench, layout, group, lengths, windows[round / 3 % 3], soft_cap);
    const auto out = bench.Output(story.q.rows, story.q.cols);
    RunStep(bench, story, {{0, 0, lengths[0]}, {1, 0, lengths[1]}, {2, 0, lengths[2]}}, out.device);
    const auto keys = ReadPlane(bench, story.scene, 1, KvLayout::kKeys, lengths);
    const auto values = ReadPlane(bench, story.scene, 1, KvLayout::kValues, lengths);
    const int dim = layout.head_dim;
    const double scale = 1 / std::sqrt(static_cast<float>(dim));
    std::vector<double> expected(static_cast<size_t>(story.q.rows) * story.q.cols),
        tolerance(expected.size());
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int position = 0; position < lengths[s]; ++position) {
        const int row = story.first_row[s] + position;
        for (int head = 0; head < story.scene.heads; ++head) {
          const auto at = [&](int key) {
            return (static_cast<size_t>(key) * layout.kv_heads + head / group) * dim;
          };
          const int first = story.window > 0 ? std::max(0, position + 1 - story.window) : 0;
          std::vector<double> p(position + 1, -INFINITY);
          double max = -INFINITY, sum = 0;
          std::vector<double> q(dim), results(dim), sizes(dim);
          for (int i = 0; i < dim; ++i) q[i] = story.q(row, head * dim + i);
          for (int key = first; key <= position; ++key) {
            p[key] = 0;
            const auto* const k = &keys[s][at(key)];
            for (int i = 0; i < dim; ++i) p[key] += q[i] * k[i] * scale;
            if (soft_cap > 0) p[key] = soft_cap * std::tanh(p[key] / soft_cap);
            max = std::max(max, p[key]);
          }
          for (double& x : p) sum += x = std::exp(x - max);
          for (int key = first; key <= position; ++key) {
            const auto* const v = &values[s][at(key)];
            const double weight = p[key] / sum;
            for (int i = 0; i < dim; ++i) {
              results[i] += weight * v[i];
              sizes[i] += weight * std::fabs(v[i]);
            }
          }
          for (int i = 0; i < dim; ++i) {
            const double result = results[i], size = sizes[i];
            const size_t index = static_cast<size_t>(row) * story.q.cols + head * dim + i;
            expected[index] = result;
            // A score may be as large as some tens. Its error, a few units in the last place,
            // becomes a relative error of its weight by exp. The sum over the keys is rounded, too.
            tolerance[index] = size * (64 + position / 4) * 0x1p-22 + bench.Slack(result);
            if (GetParam().rounded_attention_weights && layout.type != DType::kF32) {
              // The softmax weights are rounded to the KV's type, both where they multiply the
              // values and where they are summed up to divide the result.
              tolerance[index] += Rounding(layout.type) * (size + std::fabs(result));
            }
          }
        }
      }
    }
    EXPECT_TRUE(Near(bench.Read(out.device), expected, tolerance))
        << layout.Fingerprint() << " group " << group << " window " << story.window << " cap "
        << soft_cap;
  }
}

TEST_P(BackendConformanceTest, AttentionGivesARowTheSameBitsInPrefillDecodeAndEveryBatch) {
  struct Shape {
    KvLayout layout;
    int group;
    std::vector<int> lengths;
    int window;
    float soft_cap = 0;
  };
  const Shape shapes[] = {
      {{2, 2, 64, 16, DType::kBF16}, 3, {70, 5, 131}, 0},
      {{2, 1, 40, 7, DType::kF16}, 1, {129, 64, 1}, 0},
      {{2, 1, 16, 13, DType::kF32}, 2, {2100, 1024, 1025}, 0},
      {{2, 2, 64, 16, DType::kBF16}, 3, {70, 5, 131}, 40},
      {{2, 1, 16, 5, DType::kF16}, 5, {300, 65, 9}, 7},
      {{2, 1, 40, 7, DType::kF32}, 1, {129, 64, 1}, 1, 2},
      {{2, 1, 16, 13, DType::kF32}, 2, {2100, 1024, 1025}, 1000},
      {{2, 1, 32, 16, DType::kBF16}, 1, {1200, 64, 1025}, 64, 1.5},
  };
  for (Shape shape : shapes) {
    if (GetParam().slow) {
      for (int& length : shape.lengths) length = length > 300 ? length / 6 : length;
      if (shape.window > 300) shape.window /= 6;
    }
    const std::vector<int>& n = shape.lengths;
    std::vector<float> expected;
    for (int threads = 1; threads <= GetParam().max_threads; ++threads) {
      const auto fresh = [&](const std::function<void(Bench&, const Story&, const Tensor&)>& run) {
        Bench bench(GetParam(), threads, 9);
        const Story story =
            MakeStory(bench, shape.layout, shape.group, n, shape.window, shape.soft_cap);
        const auto out = bench.Output(story.q.rows, story.q.cols);
        run(bench, story, out.device);
        return bench.Read(out.device);
      };
      const auto whole = fresh([&](Bench& bench, const Story& story, const Tensor& out) {
        RunStep(bench, story, {{0, 0, n[0]}, {1, 0, n[1]}, {2, 0, n[2]}}, out);
      });
      if (threads == 1) expected = whole;
      EXPECT_TRUE(SameBits(whole, expected)) << threads << " threads";
      for (const float x : whole) ASSERT_FALSE(std::isnan(x));
      // Computes the sequences in chunks of random length. A step holds chunks of one sequence or
      // of several.
      EXPECT_TRUE(SameBits(fresh([&](Bench& bench, const Story& story, const Tensor& out) {
                             std::mt19937 random(threads);
                             std::vector<int> done(n.size());
                             for (bool any = true; any;) {
                               any = false;
                               std::vector<Part> parts;
                               for (size_t s = 0; s < n.size(); ++s) {
                                 const int rows = std::min<int>(
                                     n[s] - done[s], random() % (random() % 2 == 0 ? 3 : 300));
                                 any |= done[s] < n[s];
                                 if (rows == 0) continue;
                                 parts.push_back({static_cast<int>(s), done[s], done[s] + rows});
                                 done[s] += rows;
                               }
                               RunStep(bench, story, parts, out);
                             }
                           }),
                           expected))
          << threads << " threads, chunks";
      // Each sequence is prefilled up to some position and then decoded token by token.
      EXPECT_TRUE(SameBits(fresh([&](Bench& bench, const Story& story, const Tensor& out) {
                             for (size_t s = 0; s < n.size(); ++s) {
                               const int start = std::max(1, n[s] - 80);
                               RunStep(bench, story, {{static_cast<int>(s), 0, start}}, out);
                               for (int p = start; p < n[s]; ++p) {
                                 RunStep(bench, story, {{static_cast<int>(s), p, p + 1}}, out);
                               }
                             }
                           }),
                           expected))
          << threads << " threads, decode";
    }
  }
}

TEST_P(BackendConformanceTest, AWindowThatReachesTheStartGivesTheBitsOfNone) {
  std::vector<float> expected;
  for (const int window : {0, 200, 1 << 30}) {
    Bench bench(GetParam(), 2, 13);
    const Story story = MakeStory(bench, {2, 2, 24, 16, DType::kF16}, 2, {200, 3}, window);
    const auto out = bench.Output(story.q.rows, story.q.cols);
    RunStep(bench, story, {{0, 0, 200}, {1, 0, 3}}, out.device);
    const auto got = bench.Read(out.device);
    if (expected.empty()) expected = got;
    EXPECT_TRUE(SameBits(got, expected)) << window;
  }
}

TEST_P(BackendConformanceTest, NothingOutsideOfItsWindowTouchesARow) {
  for (const int window : {1, 50, 64, 1030}) {
    for (const int rows : {1, 3, 40}) {
      constexpr int kLength = 1200;
      Bench bench(GetParam(), 2, 14);
      const Story story = MakeStory(bench, {2, 1, 16, 8, DType::kBF16}, 2, {kLength}, window);
      const auto out = bench.Output(story.q.rows, story.q.cols);
      RunStep(bench, story, {{0, 0, kLength}}, out.device);
      const auto expected = bench.Read(bench.Rows(out.device, kLength - rows, rows));
      // The step computes `rows` rows. Writes NaN to every slot that all of them must ignore.
      const KvLayout& layout = story.scene.layout;
      auto pool = bench.Bytes(story.scene.pool.get(), story.scene.pool_bytes);
      for (int position = 0; position < kLength - rows + 1 - window; ++position) {
        for (const auto plane : {KvLayout::kKeys, KvLayout::kValues}) {
          std::byte* slot = pool.data() +
                            layout.HeadOffset(story.scene.blocks[0][position / 8], 1, plane, 0) +
                            position % 8 * layout.TokenBytes();
          std::memset(slot, 0xff, layout.TokenBytes());
        }
      }
      GetParam().upload(story.scene.pool.get(), pool.data(), pool.size());
      RunStep(bench, story, {{0, kLength - rows, kLength}}, out.device);
      EXPECT_TRUE(SameBits(bench.Read(bench.Rows(out.device, kLength - rows, rows)), expected))
          << "window " << window << ", " << rows << " rows";
    }
  }
}

TEST_P(BackendConformanceTest, AttentionBitsDoNotDependOnBlocks) {
  std::vector<float> expected;
  for (const int block_tokens : {1, 3, 16, 64, 200}) {
    Bench numbers(GetParam(), 1, 10);
    const auto q = numbers.Normal(150 * 64), k = numbers.Normal(150 * 32),
               v = numbers.Normal(150 * 32);
    Bench bench(GetParam(), 2, block_tokens);
    const KvLayout layout{2, 2, 16, block_tokens, DType::kBF16};
    Story story = MakeStory(bench, layout, 2, {150});
    story.q = bench.Activation(150, 64, q);
    story.k = bench.Activation(150, 32, k);
    story.v = bench.Activation(150, 32, v);
    const auto out = bench.Output(150, 64);
    RunStep(bench, story, {{0, 0, 150}}, out.device);
    const auto got = bench.Read(out.device);
    if (expected.empty()) expected = got;
    EXPECT_TRUE(SameBits(got, expected)) << block_tokens;
  }
}

TEST_P(BackendConformanceTest, BadRowsAndPoolsAreInvalidArgument) {
  Bench bench(GetParam(), 1, 11);
  Backend& backend = bench.backend();
  const auto code = [](const absl::Status& status) { return status.code(); };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto t = [&](int rows, int cols) { return bench.Activation(rows, cols).device; };

  const KvLayout layout{2, 2, 8, 4, DType::kF16};
  Scene scene = MakeScene(bench, layout, 2, {9});
  const auto frequencies = Frequencies(8);
  const std::vector<SequenceRows> good = {{0, 2, 7, scene.blocks[0]}};
  const auto rope_with = [&](const std::vector<SequenceRows>& sequences, KvView kv, int layer,
                             int q_cols, int k_cols, const std::vector<Rope>& ropes) {
    return code(backend.RopeAndWriteKv(
        {t(2, q_cols), t(2, k_cols), t(2, k_cols), ropes, layer, sequences, kv}));
  };
  const auto rope = [&](const std::vector<SequenceRows>& sequences, KvView kv, int layer,
                        int q_cols, int k_cols) {
    return rope_with(sequences, kv, layer, q_cols, k_cols, {{frequencies, 1}});
  };
  const auto attend = [&](const std::vector<SequenceRows>& sequences, KvView kv, int layer,
                          int heads, int cols) {
    return code(backend.Attention({t(2, cols), heads, 1, 0, layer, sequences, kv, t(2, cols)}));
  };
  const KvView kv = scene.view();
  EXPECT_EQ(rope(good, kv, 1, 32, 16), absl::StatusCode::kOk);
  EXPECT_EQ(attend(good, kv, 1, 4, 32), absl::StatusCode::kOk);
  EXPECT_EQ(code(backend.Attention({t(2, 32), 4, 1, -1, 1, good, kv, t(2, 32)})), kInvalid);
  for (const float soft_cap : {-1.0f, 1e-20f, 1e20f, INFINITY, NAN}) {
    EXPECT_EQ(code(backend.Attention({t(2, 32), 4, 1, 0, 1, good, kv, t(2, 32), soft_cap})),
              kInvalid)
        << soft_cap;
  }
  const auto long_frequencies = Frequencies(10);
  EXPECT_EQ(rope_with(good, kv, 1, 32, 16, {}), kInvalid);
  EXPECT_EQ(rope_with(good, kv, 1, 32, 16, {{{}, 1}}), kInvalid);
  EXPECT_EQ(rope_with(good, kv, 1, 32, 16, {{long_frequencies, 1}}), kInvalid);
  EXPECT_EQ(rope_with(good, kv, 1, 32, 16, {{frequencies, 1}, {frequencies, 1}}), kInvalid);
  EXPECT_EQ(rope(good, kv, 2, 32, 16), kInvalid);
  EXPECT_EQ(attend(good, kv, -1, 4, 32), kInvalid);
  EXPECT_EQ(rope(good, kv, 1, 30, 16), kInvalid);
  EXPECT_EQ(rope(good, kv, 1, 32, 24), kInvalid);
  EXPECT_EQ(attend(good, kv, 1, 3, 24), kInvalid);
  EXPECT_EQ(attend(good, kv, 1, 4, 40), kInvalid);
  KvView odd = kv;
  odd.layout.head_dim = 7;
  EXPECT_EQ(rope(good, odd, 1, 28, 14), kInvalid);
  KvView no_pool = kv;
  no_pool.data = nullptr;
  EXPECT_EQ(attend(good, no_pool, 1, 4, 32), kInvalid);
  for (const SequenceRows& bad : {SequenceRows{0, 3, 0, scene.blocks[0]},
                                  {-1, 1, 0, scene.blocks[0]},
                                  {0, -1, 0, scene.blocks[0]},
                                  {0, 1, -1, scene.blocks[0]},
                                  {0, 1, 12, scene.blocks[0]},
                                  {0, 1, 1 << 24, scene.blocks[0]},
                                  {0, 1, 0, {}}}) {
    EXPECT_EQ(rope({bad}, kv, 1, 32, 16), kInvalid);
    EXPECT_EQ(attend({bad}, kv, 1, 4, 32), kInvalid);
  }
  const std::vector<BlockId> negative = {-1, 0, 1};
  EXPECT_EQ(attend({{0, 1, 0, negative}}, kv, 1, 4, 32), kInvalid);
}

}  // namespace
}  // namespace baton
