// Times whole steps of an 8B Llama with random weights in bf16. The time of a step is compared with
// two other times: the time that its arithmetic takes at the rate of a square gemm, and the time
// that moving its bytes takes at the rate of a copy. Both rates are measured on the same device.

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/engine/engine.h"
#include "common/model/model.h"
#include "tests/bench/device_bench.h"
#include "tests/bench/replay_timer.h"

namespace baton {
namespace {

// Returns the configuration of Llama 3 8B, or of a small model.
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

// Returns the number of weights that multiply each row of a step. Leaves out attention, and the
// head, which multiplies only rows whose logits are wanted.
double GemmWeights(const ModelConfig& c) {
  const double attention = 2.0 * c.hidden * c.head_dim * (c.heads + c.kv_heads);
  return c.layers * (attention + 3.0 * c.hidden * c.intermediate);
}
double HeadWeights(const ModelConfig& c) { return 1.0 * c.vocab * c.hidden; }

// Number of timed steps that follow the first one, before the sequences start again from their
// first step. Each sequence has free positions for all these steps.
constexpr int kFollowing = 64;

// A model on the device with its pool and engine.
class SteppedModel {
 public:
  // Creates an engine for steps as large as `max`, with a pool of `tokens` tokens.
  SteppedModel(DeviceBench& bench, const StepSize& max, int tokens)
      : timer_(&bench.runtime()), backend_(bench.CreateBackend(&timer_)), random_(1) {
    auto model = Model::WithRandomWeights(ConfigOf(bench.tiny()), /*seed=*/1, backend_.get());
    DeviceBench::Check(model.status(), "WithRandomWeights");
    model_ = *std::move(model);
    layout_ = model_->LayoutFor(bench.tiny() ? 16 : 64, DType::kBF16);
    free_.resize(layout_.BlocksFor(tokens));
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), random_);
    std::byte* const pool = bench.Random(free_.size() * layout_.BlockBytes());
    auto engine = Engine::Create(model_.get(), backend_.get(), {pool, layout_}, max);
    DeviceBench::Check(engine.status(), "Engine::Create");
    engine_ = *std::move(engine);
    sampling_.max_tokens = 1 << 20;
  }

  const ModelConfig& config() const { return model_->config(); }
  const KvLayout& layout() const { return layout_; }
  // Returns the runtime on which the steps run. It can repeat the latest replay of a graph.
  ReplayTimer& timer() { return timer_; }

  // Equal sequences of a step. Each computes the last `rows` of its `context` positions.
  struct Group {
    int batch, context, rows;
  };
  // Returns an item that times steps over all sequences of `groups`. Their KV blocks hold random
  // numbers. If the device samples the tokens and each sequence computes one row, the steps run as
  // in a decode worker: each step takes its tokens from the previous step on the device, and the
  // host gets the tokens of a step while the next one runs.
  DeviceBench::Timed Step(const std::vector<Group>& groups) {
    auto step = std::make_shared<Parts>();
    int blocks = 0, max_rows = 0, all_rows = 0;
    for (const Group& group : groups) all_rows += group.batch * group.rows;
    step->tokens.reserve(all_rows);  // Reserved, because the items point into this vector.
    for (const Group& group : groups) {
      const int each = layout_.BlocksFor(group.context + kFollowing);
      max_rows = std::max(max_rows, group.rows);
      for (int i = 0; i < group.batch; ++i, blocks += each) {
        step->blocks.emplace_back(free_.begin() + blocks, free_.begin() + blocks + each);
        for (int r = 0; r < group.rows; ++r) {
          step->tokens.push_back(static_cast<TokenId>(random_() % config().vocab));
        }
      }
    }
    size_t first_token = 0, sequence = 0;
    for (const Group& group : groups) {
      for (int i = 0; i < group.batch; ++i, ++sequence, first_token += group.rows) {
        PlanItem item = {
            .tokens = absl::MakeConstSpan(step->tokens).subspan(first_token, group.rows),
            .first_position = group.context - group.rows,
            .blocks = step->blocks[sequence],
            .sampling = &sampling_};
        step->first.items.push_back(item);
        item.tokens = {};
        item.follows = static_cast<int>(sequence);
        step->next.items.push_back(item);
      }
    }
    const bool follow =
        max_rows == 1 && engine_->SamplesOnDevice(sampling_, /*original_prompt_tokens=*/0);
    return {[this, step, follow]() -> absl::Status {
              while (engine_->running() > (follow ? 1 : 0)) {
                RETURN_IF_ERROR(Finish());
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
                RETURN_IF_ERROR(Finish());
              }
              return absl::OkStatus();
            }};
  }

 private:
  struct Parts {
    std::vector<TokenId> tokens;
    std::vector<std::vector<BlockId>> blocks;
    StepPlan first, next;
    int following = 0;  // Number of steps since `first`.
  };

  absl::Status Finish() {
    ASSIGN_OR_RETURN(const auto tokens, engine_->Finish());
    for (const auto& token : tokens) {
      RETURN_IF_ERROR(token.status());
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
  using Group = SteppedModel::Group;
  struct Shape {
    Group group;
    double target, good;
    // Sequences that decode in the same step as `group`; none if `batch` is 0.
    Group beside = {0, 0, 0};
    std::string Name() const {
      if (beside.batch > 0) {
        return absl::StrCat("mixed step, prompt rows ", group.rows, ", streams ", beside.batch,
                            " x ", beside.context);
      }
      if (group.rows == 1) return absl::StrCat("decode step ", group.batch, " x ", group.context);
      return absl::StrCat("prefill ", group.rows);
    }
  };
  std::vector<Shape> shapes =
      bench.tiny() ? std::vector<Shape>{{{1, 40, 1}, 0.68, 0.76},
                                        {{3, 40, 1}, 0.80, 0.90},
                                        {{1, 40, 40}, 0.78, 0.88},
                                        {{1, 20, 20}, 0, 0, {1, 60, 1}}}
                   : std::vector<Shape>{
                         {{1, 1024, 1}, 0.68, 0.76},          {{1, 8192, 1}, 0.68, 0.76},
                         {{8, 1024, 1}, 0.68, 0.77},          {{32, 1024, 1}, 0.68, 0.76},
                         {{64, 1024, 1}, 0.69, 0.77},         {{32, 4096, 1}, 0.76, 0.86},
                         {{64, 4096, 1}, 0.80, 0.90},         {{1, 512, 512}, 0.70, 0.85},
                         {{1, 1024, 1024}, 0.75, 0.88},       {{1, 2048, 2048}, 0.78, 0.88},
                         {{1, 4096, 4096}, 0.78, 0.88},       {{1, 8192, 8192}, 0.74, 0.86},
                         {{1, 512, 512}, 0, 0, {1, 8192, 1}}, {{1, 512, 512}, 0, 0, {32, 1024, 1}}};
  std::erase_if(shapes, [&](const Shape& s) { return !bench.Wants(s.Name()); });
  if (shapes.empty()) return;
  const auto copy = bench.CopyYardstick();
  const auto square = bench.GemmYardstick();
  int tokens = 0;
  StepSize max(0);
  for (const Shape& s : shapes) {
    int of_step = 0, rows = 0;
    for (const Group& g : {s.group, s.beside}) {
      of_step += g.batch * (g.context + 2 * kFollowing);
      rows += g.batch * g.rows;
      max.context = std::max(max.context, g.context + kFollowing);
    }
    tokens = std::max(tokens, of_step);
    max.rows = std::max(max.rows, rows);
    max.sequences = std::max(max.sequences, s.group.batch + s.beside.batch);
  }
  SteppedModel model(bench, max, tokens);
  const ModelConfig& c = model.config();
  const double token_bytes =
      1.0 * model.layout().BlockBytes() / model.layout().block_tokens;  // K and V, all layers.
  for (const Shape& s : shapes) {
    const std::string name = s.Name();
    const bool decode = s.group.rows == 1, mixed = s.beside.batch > 0;
    std::vector<Group> groups = {s.group};
    if (mixed) groups.push_back(s.beside);
    std::vector<DeviceBench::Timed> timed = {copy.timed, square.timed, model.Step(groups)};
    // If the step has a graph, times the graph alone by replaying it.
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
    const auto milliseconds = [](std::string name, double median, double min, double max) {
      return BenchFigures::Figure{std::move(name), "ms", median * 1e3, min * 1e3, max * 1e3};
    };
    auto figure = milliseconds(name, times[2].median, times[2].min, times[2].max);
    figure.target = s.target;
    figure.good = s.good;
    if (decode) {
      // One step reads all weights once for all sequences, and the keys and values of each
      // sequence.
      const double weights = GemmWeights(c) + HeadWeights(c);
      const double kv = s.group.batch * s.group.context * token_bytes;
      const double roof =
          std::max(2 * weights / bandwidth, 2 * weights * s.group.batch / rate) + kv / bandwidth;
      figure.ratio = roof / times[2].median;
      figure.of = "the memory roof";
      bench.figures().Add(figure);
      if (!has_graph) continue;
      const double graph = times[3].median, beyond = times[2].median - graph;
      const double max = 0.03 * graph + 0.15e-3;
      auto host = milliseconds(absl::StrCat(name, ", beyond its graph"), beyond,
                               times[2].min - graph, times[2].max - graph);
      host.ratio = max / std::max(beyond, max / 100);
      host.of = "what it may be";
      host.target = 1;
      bench.figures().Add(host);
      if (!free_before.ok() || !free_after.ok()) continue;
      // Memory of the step's graph, and of everything that the first step of this size loaded and
      // allocated.
      const double bytes = static_cast<double>(*free_before) - static_cast<double>(*free_after);
      bench.figures().Add({absl::StrCat(name, ", its memory"), "MiB", bytes / (1 << 20),
                           bytes / (1 << 20), bytes / (1 << 20)});
    } else {
      const int rows = s.group.rows;
      const double attention = 4.0 * c.layers * c.heads * c.head_dim * rows * (rows + 1.0) / 2;
      const double streams = s.beside.batch;
      const double flops =
          2 * (GemmWeights(c) * (rows + streams) + HeadWeights(c) * (s.group.batch + streams)) +
          attention;
      // The step also reads the keys and values of the decoding sequences. No gemm runs during this
      // read, so its time is added.
      const double kv = streams * s.beside.context * token_bytes;
      figure.ratio = (flops / rate + kv / bandwidth) / times[2].median;
      figure.of = mixed ? "gemm and copy" : "gemm";
      bench.figures().Add(figure);
    }
  }
}

}  // namespace baton
