#include "common/engine/late_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// Placeholder for sampled tokens until their step has finished. It shows up in answers if the host
// reads tokens too early.
constexpr TokenId kNotYet = 1'000'000'007;

// Converts `sample` to the options of Sampler.
SamplingOptions SamplingOf(const SampleOptions& sample) {
  SamplingOptions sampling;
  sampling.temperature = sample.temperature;
  sampling.top_p = sample.top_p;
  sampling.top_k = sample.top_k;
  sampling.min_p = sample.min_p;
  sampling.seed = sample.seed;
  sampling.answer_index = sample.answer_index;
  sampling.logit_bias.assign(sample.logit_bias.begin(), sample.logit_bias.end());
  for (const TokenId id : sample.banned) sampling.bad_words.push_back({id});
  sampling.stop_tokens.assign(sample.stop_tokens.begin(), sample.stop_tokens.end());
  sampling.min_tokens = sample.min_tokens;
  sampling.repetition_penalty = sample.repetition_penalty;
  sampling.presence_penalty = sample.presence_penalty;
  sampling.frequency_penalty = sample.frequency_penalty;
  if (sample.alternatives >= 0) sampling.logprobs = sample.alternatives;
  return sampling;
}

}  // namespace

// One started step. Holds copies of all data that the step's operations read when they run.
struct LateBackend::Step {
  uint64_t number = 0;
  StepArgs args;
  std::vector<TokenId> tokens;
  std::vector<int> follows, logit_rows;
  std::vector<std::vector<BlockId>> blocks;
  std::vector<std::vector<uint64_t>> generations;
  std::vector<SequenceRows> sequences;
  std::vector<std::vector<float>> frequencies;
  std::vector<Rope> ropes;
  struct Sample {
    SamplingOptions sampling;
    int position = 0, generated = 0;
    uint64_t sequence = 0;
    std::optional<TokenHistory> history;  // nullopt: the history is in histories_
  };
  std::vector<std::optional<Sample>> samples;  // per logit row; nullopt: the host samples
  std::vector<std::function<absl::Status()>> ops;
  size_t next = 0;  // index in `ops` of the next operation to run

  void CopyArgs(const StepArgs& from) {
    args = from;
    tokens.assign(from.tokens.begin(), from.tokens.end());
    follows.assign(from.follows.begin(), from.follows.end());
    logit_rows.assign(from.logit_rows.begin(), from.logit_rows.end());
    for (const SequenceRows& sequence : from.sequences) {
      blocks.emplace_back(sequence.blocks.begin(), sequence.blocks.end());
      sequences.push_back(sequence);
    }
    for (size_t i = 0; i < sequences.size(); ++i) sequences[i].blocks = blocks[i];
    for (const Rope& rope : from.ropes) {
      frequencies.emplace_back(rope.inverse_frequency.begin(), rope.inverse_frequency.end());
      ropes.push_back(rope);
    }
    for (size_t i = 0; i < ropes.size(); ++i) ropes[i].inverse_frequency = frequencies[i];
    for (size_t i = 0; i < logit_rows.size(); ++i) {
      samples.emplace_back();
      if (from.samples.empty() || from.samples[i] == nullptr) continue;
      const SampleOptions& sample = *from.samples[i];
      samples.back() = Sample{SamplingOf(sample), sample.position, sample.generated,
                              sample.sequence, std::nullopt};
      const bool follows_one = !follows.empty() && follows[logit_rows[i]] >= 0;
      if (sample.sequence != 0 && !follows_one) samples.back()->history = *sample.history;
    }
    args.tokens = tokens;
    args.follows = follows;
    args.logit_rows = logit_rows;
    args.sequences = sequences;
    args.ropes = ropes;
    args.samples = {};
  }
};

LateBackend::LateBackend(LateBackendOptions options)
    : options_(std::move(options)),
      fake_(CreateFakeBackend(options_.fake)),
      random_(options_.seed) {}

LateBackend::~LateBackend() = default;

absl::Status LateBackend::StartStep(const StepArgs& args, StepOps ops) {
  if (running_.size() == kMaxSteps) {
    return absl::FailedPreconditionError("step: two are started and not finished");
  }
  if (++asked_ == options_.failing_start) return absl::InternalError("the device takes no step");
  auto step = std::make_unique<Step>();
  step->number = started_ + 1;
  step->CopyArgs(args);
  if (options_.generations != nullptr) {
    for (const auto& blocks : step->blocks) {
      auto& generations = step->generations.emplace_back();
      for (const BlockId block : blocks) generations.push_back(options_.generations[block]);
    }
  }
  for (BackendSample& sampled : args.sampled) sampled.id = kNotYet;
  recorded_ = step.get();
  running_.push_back(std::move(step));
  const absl::Status recorded = ops(recorded_->args);
  recorded_ = nullptr;
  if (!recorded.ok()) {
    running_.pop_back();
    return recorded;
  }
  ++started_;
  if (running_.size() > 1) {
    ++started_ahead_;
    rows_ahead_ +=
        std::count_if(args.follows.begin(), args.follows.end(), [](int row) { return row >= 0; });
  }
  if (options_.seed == 0) return absl::OkStatus();
  random_ = random_ * 0x5851F42D4C957F2D + 0x14057B7EF767814F;
  return RunSome((random_ >> 33) % 40);
}

absl::Status LateBackend::FinishStep() {
  if (running_.empty()) return absl::FailedPreconditionError("step: none is started");
  absl::Status ran = RunOldest();
  running_.erase(running_.begin());
  ++finished_;
  if (finished_ == options_.failing_step) ran = absl::InternalError("the device has failed");
  return ran;
}

absl::Status LateBackend::RunOldest() {
  Step& step = *running_.front();
  while (step.next < step.ops.size()) {
    RETURN_IF_ERROR(step.ops[step.next++]());
  }
  return absl::OkStatus();
}

// Runs up to `ops` operations of the running steps, in the order in which they were called.
absl::Status LateBackend::RunSome(size_t ops) {
  for (const auto& step : running_) {
    for (; ops > 0 && step->next < step->ops.size(); --ops) {
      RETURN_IF_ERROR(step->ops[step->next++]());
    }
  }
  return absl::OkStatus();
}

absl::Status LateBackend::Then(std::function<absl::Status()> op) {
  if (recorded_ != nullptr) {
    recorded_->ops.push_back(std::move(op));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Synchronize());
  return op();
}

absl::Status LateBackend::Synchronize() { return RunSome(~size_t{0}); }

absl::Status LateBackend::Embed(const EmbedArgs& args) {
  if (recorded_ == nullptr) return Then([this, args] { return fake_->Embed(args); });
  return Then([this, args, step = recorded_] { return EmbedNow(*step, args); });
}
absl::Status LateBackend::RmsNorm(const RmsNormArgs& args) {
  return Then([this, args] { return fake_->RmsNorm(args); });
}
absl::Status LateBackend::Gemm(const GemmArgs& args) {
  return Then([this, args] { return fake_->Gemm(args); });
}
absl::Status LateBackend::RopeAndWriteKv(const RopeAndWriteKvArgs& args) {
  return Then([this, args, step = recorded_] {
    if (step != nullptr) CheckBlocks(*step);
    return fake_->RopeAndWriteKv(args);
  });
}
absl::Status LateBackend::Attention(const AttentionArgs& args) {
  return Then([this, args, step = recorded_] {
    if (step != nullptr) CheckBlocks(*step);
    return fake_->Attention(args);
  });
}
absl::Status LateBackend::SiluMul(const SiluMulArgs& args) {
  return Then([this, args] { return fake_->SiluMul(args); });
}
absl::Status LateBackend::Logits(const LogitsArgs& args) {
  if (recorded_ == nullptr) return Then([this, args] { return fake_->Logits(args); });
  return Then([this, args, step = recorded_] { return SampleNow(*step, args); });
}

void LateBackend::CheckBlocks(const Step& step) {
  for (size_t i = 0; i < step.generations.size(); ++i) {
    for (size_t b = 0; b < step.generations[i].size(); ++b) {
      const BlockId block = step.blocks[i][b];
      const uint64_t began = step.generations[i][b], now = options_.generations[block];
      if (began % 2 == 1 && now == began) continue;
      if (lost_blocks_++ > 0) continue;
      first_lost_ =
          absl::StrCat("step ", step.number, ", sequence ", i, ": block ", block,
                       " had generation ", began, " when it was started, ", now, " when it ran");
    }
  }
}

absl::Status LateBackend::EmbedNow(const Step& step, const EmbedArgs& args) {
  std::vector<TokenId> tokens = step.tokens;
  for (size_t row = 0; row < step.follows.size(); ++row) {
    if (step.follows[row] >= 0) tokens[row] = sampled_.at(step.follows[row]);
  }
  return fake_->Embed({.table = args.table, .tokens = tokens, .out = args.out});
}

absl::Status LateBackend::SampleNow(const Step& step, const LogitsArgs& args) {
  const size_t rows = step.logit_rows.size();
  const size_t vocab = static_cast<size_t>(step.args.vocab);
  std::vector<float> logits(rows * vocab);
  RETURN_IF_ERROR(fake_->Logits(
      {.in = args.in, .head = args.head, .rows = step.logit_rows, .out = absl::MakeSpan(logits)}));
  sampled_.assign(rows, 0);
  auto host = step.args.logits.begin();
  auto sampled = step.args.sampled.begin();
  for (size_t i = 0; i < rows; ++i) {
    const auto row = absl::MakeSpan(logits).subspan(i * vocab, vocab);
    if (!step.samples[i]) {
      host = std::copy(row.begin(), row.end(), host);
      continue;
    }
    const Step::Sample& sample = *step.samples[i];
    TokenHistory* history = nullptr;
    if (sample.history) histories_.insert_or_assign(sample.sequence, *sample.history);
    if (sample.sequence != 0) history = &histories_.at(sample.sequence);
    const auto token =
        sampler_.Sample(row, sample.sampling, sample.position, sample.generated, history);
    *sampled = {};
    sampled->status = token.status();
    if (token.ok()) {
      if (history != nullptr) history->Append(token->id);
      sampled_[i] = token->id;
      sampled->id = token->id;
      sampled->logprob = token->logprob.value_or(0);
      for (const TokenLogprob& top : token->top) sampled->top.emplace_back(top.id, top.logprob);
    }
    ++sampled;
  }
  return absl::OkStatus();
}

}  // namespace baton
