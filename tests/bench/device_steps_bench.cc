// Whole steps of an 8B Llama with random weights in bf16: of decode, against the time that its
// bytes and its arithmetic take at the device's own rates, and of prefill, against the rate of its
// products.

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/engine/engine.h"
#include "common/model/model.h"
#include "tests/bench/device_bench.h"
#include "tests/bench/replay_timer.h"

namespace baton {
namespace {

// That of Llama 3 8B, or a small one.
ModelConfig ConfigOf(bool tiny) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.layers = tiny ? 2 : 32;
  config.hidden = tiny ? 256 : 4096;
  config.intermediate = tiny ? 512 : 14336;
  config.heads = tiny ? 4 : 32;
  config.kv_heads = tiny ? 2 : 8;
  config.head_dim = tiny ? 64 : 128;
  config.vocab = tiny ? 512 : 128256;
  config.context = tiny ? 256 : 16384;
  config.rms_epsilon = 1e-5f;
  config.rope.dims = config.head_dim;
  config.rope.theta = 500000;
  return config;
}

// Of one row, without attention over others; the head is only for rows whose logits are wanted.
double ProductWeights(const ModelConfig& c) {
  const double attention = 2.0 * c.hidden * c.head_dim * (c.heads + c.kv_heads);
  return c.layers * (attention + 3.0 * c.hidden * c.intermediate);
}
double HeadWeights(const ModelConfig& c) { return 1.0 * c.vocab * c.hidden; }

// Steps that follow one another before the sequences begin anew: room behind each of them.
constexpr int kFollowing = 64;

// A model on the device with its pool and engine.
class SteppedModel {
 public:
  // Of steps as large as `most` says, over a pool of `tokens`.
  SteppedModel(DeviceBench& bench, const StepSize& most, int tokens)
      : timer_(&bench.runtime()), backend_(bench.CreateBackend(&timer_)), random_(1) {
    auto model = Model::WithRandomWeights(ConfigOf(bench.tiny()), /*seed=*/1, backend_.get());
    DeviceBench::Check(model.status(), "WithRandomWeights");
    model_ = *std::move(model);
    layout_ = model_->LayoutFor(bench.tiny() ? 16 : 64, DType::kBF16);
    free_.resize(layout_.BlocksFor(tokens));
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), random_);
    std::byte* const pool = bench.Random(free_.size() * layout_.BlockBytes());
    auto engine = Engine::Create(model_.get(), backend_.get(), {pool, layout_}, most);
    DeviceBench::Check(engine.status(), "Engine::Create");
    engine_ = *std::move(engine);
    sampling_.max_tokens = 1 << 20;
  }

  const ModelConfig& config() const { return model_->config(); }
  const KvLayout& layout() const { return layout_; }
  // That replays the step's graph, where it has one.
  ReplayTimer& timer() { return timer_; }

  // A step of `batch` sequences with the last `rows` of `context` positions, in blocks that hold
  // random numbers. Where the device draws the tokens, steps of one row follow one another there
  // and the host is one behind, as a decode worker has it.
  DeviceBench::Timed Step(int batch, int context, int rows) {
    auto step = std::make_shared<Parts>();
    const int each = layout_.BlocksFor(context + kFollowing);
    for (int i = 0; i < batch; ++i) {
      step->blocks.emplace_back(free_.begin() + i * each, free_.begin() + (i + 1) * each);
      for (int r = 0; r < rows; ++r) {
        step->tokens.push_back(static_cast<TokenId>(random_() % config().vocab));
      }
    }
    for (int i = 0; i < batch; ++i) {
      PlanItem item = {
          .tokens = absl::MakeConstSpan(step->tokens).subspan(size_t{1} * i * rows, rows),
          .first_position = context - rows,
          .blocks = step->blocks[i],
          .sampling = &sampling_};
      step->first.items.push_back(item);
      item.tokens = {};
      item.follows = i;
      step->next.items.push_back(item);
    }
    const bool follow =
        rows == 1 && engine_->DrawsOnDevice(sampling_, /*original_prompt_tokens=*/0);
    return {[this, step, follow]() -> absl::Status {
              while (engine_->running() > (follow ? 1 : 0)) {
                if (absl::Status status = Finish(); !status.ok()) return status;
              }
              step->following =
                  step->following < kFollowing && engine_->running() > 0 ? step->following + 1 : 0;
              if (step->following == 0) return engine_->Start(step->first);
              for (PlanItem& item : step->next.items) {
                item.first_position = step->first.items[0].first_position + step->following;
              }
              return engine_->Start(step->next);
            },
            [this]() -> absl::Status {
              while (engine_->running() > 0) {
                if (absl::Status status = Finish(); !status.ok()) return status;
              }
              return absl::OkStatus();
            }};
  }

 private:
  struct Parts {
    std::vector<TokenId> tokens;
    std::vector<std::vector<BlockId>> blocks;
    StepPlan first, next;
    int following = 0;  // steps since `first`
  };

  absl::Status Finish() {
    const auto tokens = engine_->Finish();
    if (!tokens.ok()) return tokens.status();
    for (const auto& token : *tokens) {
      if (!token.ok()) return token.status();
    }
    return absl::OkStatus();
  }

  ReplayTimer timer_;
  const std::unique_ptr<Backend> backend_;
  std::unique_ptr<const Model> model_;
  KvLayout layout_;
  std::mt19937 random_;
  std::vector<BlockId> free_;
  std::unique_ptr<Engine> engine_;
  SamplingOptions sampling_;
};

}  // namespace

void BenchSteps(DeviceBench& bench) {
  struct Shape {
    int batch, context, rows;
    double target;
  };
  const std::vector<Shape> shapes =
      bench.tiny()
          ? std::vector<Shape>{{1, 40, 1, 0.6}, {3, 40, 1, 0.7}, {1, 40, 40, 0.6}}
          : std::vector<Shape>{{1, 1024, 1, 0.6},   {8, 1024, 1, 0},      {64, 1024, 1, 0},
                               {64, 4096, 1, 0.7},  {1, 2048, 2048, 0.6}, {1, 4096, 4096, 0.6},
                               {1, 8192, 8192, 0.6}};
  const auto copy = bench.CopyYardstick();
  const auto square = bench.ProductYardstick();
  int tokens = 0;
  StepSize most(0);
  for (const Shape& s : shapes) {
    tokens = std::max(tokens, s.batch * (s.context + 2 * kFollowing));
    most.rows = std::max(most.rows, s.batch * s.rows);
    most.sequences = std::max(most.sequences, s.batch);
    most.context = std::max(most.context, s.context + kFollowing);
  }
  SteppedModel model(bench, most, tokens);
  const ModelConfig& c = model.config();
  for (const Shape& s : shapes) {
    std::vector<DeviceBench::Timed> timed = {copy.timed, square.timed,
                                             model.Step(s.batch, s.context, s.rows)};
    // Its graph alone, again and again, once it has one.
    ReplayTimer& timer = model.timer();
    const int replays = timer.replays();
    const auto free_before = bench.runtime().FreeBytes();
    for (int i = 0; i < 3; ++i) DeviceBench::Check(timed[2].enqueue(), "a step");
    DeviceBench::Check(timed[2].wait(), "a step");
    const bool has_graph = timer.replays() > replays;
    const auto free_after = bench.runtime().FreeBytes();
    if (has_graph) {
      timed.push_back(
          {[&] { return timer.ReplayAgain(); }, [&] { return timer.WaitForReplays(); }});
    }
    const auto times = bench.Rounds(timed);
    const double bandwidth = copy.bytes / times[0].median, rate = square.flops / times[1].median;
    if (s.rows == 1) {
      // All weights are read for all rows, and every row's keys and values.
      const double weights = ProductWeights(c) + HeadWeights(c);
      const double kv =
          1.0 * s.batch * s.context * model.layout().BlockBytes() / model.layout().block_tokens;
      const double roof =
          std::max(2 * weights / bandwidth, 2 * weights * s.batch / rate) + kv / bandwidth;
      bench.figures().Add({absl::StrCat("decode step ", s.batch, " x ", s.context), "ms",
                           times[2].median * 1e3, times[2].least * 1e3, times[2].most * 1e3,
                           roof / times[2].median, "the memory roof", s.target});
      if (!has_graph) continue;
      const double graph = times[3].median, beyond = times[2].median - graph;
      const double most = 0.05 * graph + 0.2e-3;
      bench.figures().Add(
          {absl::StrCat("decode step ", s.batch, " x ", s.context, ", beyond its graph"), "ms",
           beyond * 1e3, (times[2].least - graph) * 1e3, (times[2].most - graph) * 1e3,
           most / std::max(beyond, most / 100), "what it may be", 1});
      if (!free_before.ok() || !free_after.ok()) continue;
      // A graph's, and what a first step of that size loaded and allocated.
      const double bytes = static_cast<double>(*free_before) - static_cast<double>(*free_after);
      bench.figures().Add({absl::StrCat("decode step ", s.batch, " x ", s.context, ", its memory"),
                           "MiB", bytes / (1 << 20), bytes / (1 << 20), bytes / (1 << 20)});
    } else {
      const double attention = 4.0 * c.layers * c.heads * c.head_dim * s.rows * (s.rows + 1.0) / 2;
      const double flops = 2 * (ProductWeights(c) * s.rows + HeadWeights(c)) + attention;
      bench.figures().Add({absl::StrCat("prefill ", s.rows), "ms", times[2].median * 1e3,
                           times[2].least * 1e3, times[2].most * 1e3,
                           flops / rate / times[2].median, "product", s.target});
    }
  }
}

}  // namespace baton
