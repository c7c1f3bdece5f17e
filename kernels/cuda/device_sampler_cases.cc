#include "kernels/cuda/device_sampler_cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/sampling/sampler.h"
#include "kernels/cuda/device_sampler.h"
#include "kernels/cuda/kernels/kernels.h"

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kPoison = 0x7a7a7a7a;

class Chance {
 public:
  explicit Chance(uint32_t seed) : random_(seed) {}
  std::mt19937& random() { return random_; }
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  template <typename... T>
  auto Pick(T... values) {
    const std::array<std::common_type_t<T...>, sizeof...(values)> all = {values...};
    return all[Below(sizeof...(values))];
  }

 private:
  std::mt19937 random_;
};

// One value of `kind`, which tells FillLogits how to fill the logits of a row.
constexpr int kClose = 7;  // the first 5 logits are below 0 and differ by less than penalties do
void FillLogits(Chance& chance, int kind, absl::Span<float> logits) {
  const int vocab = static_cast<int>(logits.size());
  std::normal_distribution<float> normal(0, chance.Pick(0.5f, 3.0f, 12.0f));
  const float grain = chance.Pick(1e6f, 4.0f, 1.0f);
  for (float& logit : logits) logit = std::round(normal(chance.random()) * grain) / grain;
  for (int i = chance.Pick(0, 0, 1, 5); i > 0; --i) logits[chance.Below(vocab)] = -kInfinity;
  const auto somewhere = [&]() -> float& { return logits[chance.Below(vocab)]; };
  switch (kind) {
    case 0:  // all logits are equal
      std::fill(logits.begin(), logits.end(), chance.Pick(0.0f, -3.5f));
      break;
    case 1:  // one logit is much larger, all others are equal
      std::fill(logits.begin(), logits.end(), -2.0f);
      somewhere() = std::log(static_cast<float>(vocab)) * chance.Pick(0.5f, 1.0f, 2.0f);
      break;
    case 2:  // zeros of both signs, which count as equal
      for (float& logit : logits) logit = chance.Pick(0.0f, -0.0f, -0.0f, -1.0f);
      break;
    case 3:
      somewhere() = chance.Pick(NAN, -NAN, kInfinity);
      break;
    case 4:
      std::fill(logits.begin(), logits.end(), -kInfinity);
      break;
    case 5:  // only one token can be sampled
      std::fill(logits.begin(), logits.end(), -kInfinity);
      somewhere() = -4;
      break;
    case 6:  // the two largest logits are the last ones
      logits[vocab - 1] = logits[std::max(0, vocab - 2)] = 40;
      break;
    case kClose:
      std::fill(logits.begin(), logits.end(), -30.0f);
      for (int i = 0; i < std::min(vocab, 5); ++i) {
        logits[i] = -1.0f - 0.1f * static_cast<float>(chance.Below(6));
      }
      break;
    default:
      break;
  }
}

struct Sequence {
  SamplingOptions options;
  std::vector<TokenId> tokens;
  int prompt = 0;
  std::unique_ptr<TokenHistory> history;
};

Sequence SomeSequence(Chance& chance, int i, int vocab) {
  Sequence sequence;
  SamplingOptions& options = sequence.options;
  const auto token = [&] { return static_cast<TokenId>(chance.Below(vocab + vocab / 8 + 1)); };
  options.seed = chance.random()() | uint64_t{chance.random()()} << 32;
  options.answer_index = chance.Pick(0, 0, 3);
  options.temperature = chance.Pick(0.0f, 1e-3f, 0.7f, 1.0f, 1.0f, 1.0f, 5.0f);
  const int cuts = (i + chance.Below(2)) % 5;
  if (cuts == 1 || cuts == 3) {
    options.top_k = chance.Pick(1, 3, 40, 300, std::max(1, vocab - 1), 100000);
  }
  if (cuts == 2 || cuts == 3) {
    options.top_p = chance.Pick(0.95f, 0.4f, 1e-6f, 0.9f, 0.999999f);
  }
  if (cuts == 4 || chance.Below(3) == 0) options.min_p = chance.Pick(0.02f, 0.2f, 0.5f, 1.0f);
  if (chance.Below(3) == 0) options.repetition_penalty = chance.Pick(1.3f, 0.5f, 3.0f);
  if (chance.Below(3) == 0) options.frequency_penalty = chance.Pick(0.3f, -1.0f, 2.0f);
  if (chance.Below(3) == 0) options.presence_penalty = chance.Pick(0.7f, -2.0f);
  if (chance.Below(3) == 0) {
    std::map<TokenId, float> bias;
    for (int n = chance.Pick(1, 5, 300); n > 0; --n)
      bias[token()] = chance.Pick(-100.0f, 9.0f, 1.5f);
    options.logit_bias.assign(bias.begin(), bias.end());
  }
  for (int n = chance.Pick(0, 0, 2, 8); n > 0; --n) options.bad_words.push_back({token()});
  options.min_tokens = chance.Pick(0, 0, 10);
  for (int n = chance.Pick(0, 1, 3); n > 0; --n) options.stop_tokens.push_back(token());
  if (chance.Below(2) == 0) options.logprobs = chance.Pick(0, 1, 5, 20);

  sequence.tokens.resize(chance.Pick(1, 2, 20, 200));
  for (TokenId& id : sequence.tokens) id = std::min(token(), chance.Pick(vocab, 3, 8));
  sequence.prompt = 1 + chance.Below(static_cast<int>(sequence.tokens.size()));
  sequence.history = std::make_unique<TokenHistory>(sequence.tokens, sequence.prompt);
  return sequence;
}

// Makes sampling greedy, with penalties. The result then depends on the tokens sampled before, and
// not on random numbers.
void MakeGreedyWithPenalties(Chance& chance, Sequence* sequence) {
  SamplingOptions& options = sequence->options;
  options.temperature = 0;
  options.repetition_penalty = chance.Pick(1.0f, 1.3f, 0.5f);
  options.frequency_penalty = chance.Pick(0.3f, 2.0f);
  options.presence_penalty = chance.Pick(0.0f, 0.7f);
  options.bad_words.clear();
}

// Sets two cuts, such as top_k and then top_p. The second one cuts what the first one left.
void CutTwice(Chance& chance, Sequence* sequence) {
  SamplingOptions& options = sequence->options;
  options.temperature = chance.Pick(0.7f, 1.0f, 5.0f);
  options.top_k = chance.Pick(3, 7, 40);
  options.top_p = chance.Pick(0.4f, 0.9f, 0.95f);
  options.min_p = chance.Pick(0.0f, 0.0f, 0.02f);
}

std::string Text(const absl::StatusOr<SampledToken>& token) {
  if (!token.ok()) return token.status().ToString();
  std::string text = absl::StrCat("token ", token->id, " at ", token->position);
  if (token->logprob) absl::StrAppend(&text, " logprob ", *token->logprob);
  for (const TokenLogprob& one : token->top) absl::StrAppend(&text, " ", one.id, ":", one.logprob);
  return text;
}

bool Same(const absl::StatusOr<SampledToken>& a, const absl::StatusOr<SampledToken>& b) {
  if (!a.ok() || !b.ok()) return a.status() == b.status();
  const auto same = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.id == y.id && x.logprob == y.logprob;
  };
  return a->id == b->id && a->position == b->position && a->logprob == b->logprob &&
         std::equal(a->top.begin(), a->top.end(), b->top.begin(), b->top.end(), same);
}

// Runs one case: samples on a device, and compares with the results of Sampler.
class Sampled {
 public:
  Sampled(DeviceRuntime* runtime, const KernelTable& kernels, int i)
      : runtime_(runtime), kernels_(kernels), i_(i), chance_(1000 + i) {}
  ~Sampled() {
    runtime_->Free(logits_);
    runtime_->Free(tokens_);
  }

  absl::Status Run() {
    constexpr int kVocabs[] = {300, 2049, 1, 65, 64, 4500, 7, 700, 2048, 2300};
    vocab_ = kVocabs[i_ % std::size(kVocabs)];
    ASSIGN_OR_RETURN(auto stream, runtime_->CreateStream());
    stream_ = std::move(stream);
    ASSIGN_OR_RETURN(auto sampler,
                     DeviceSampler::Create({.runtime = runtime_,
                                            .stream = stream_.get(),
                                            .kernels = &kernels_,
                                            .vocab = vocab_,
                                            .max_rows = kMaxRows,
                                            .slots = kSlots,
                                            .history_tokens = std::min(vocab_, 250)}));
    sampler_ = std::move(sampler);
    for (auto* memory : {&logits_, &tokens_}) {
      ASSIGN_OR_RETURN(auto made,
                       runtime_->Allocate(size_t{kMaxRows} * std::max(vocab_, 2) * sizeof(float)));
      *memory = made;
    }
    const absl::Status status = RunSteps();
    // Without a graph there is nothing to wait for. With one, waits until all its replays have
    // finished, because the destructor of this object destroys the graph.
    if (graph_ == nullptr) return status;
    const absl::Status ran = runtime_->Synchronize(*stream_);
    return status.ok() ? ran : status;
  }

 private:
  static constexpr int kMaxRows = 5, kSlots = 6, kSteps = 3;

  absl::Status RunSteps() {
    sequences_.resize(kSlots);
    for (int slot = 0; slot < kSlots; ++slot) {
      Sequence sequence = SomeSequence(chance_, i_ + slot, vocab_);
      if (slot == i_ % 3) MakeGreedyWithPenalties(chance_, &sequence);
      if (slot == (i_ + 1) % 3) CutTwice(chance_, &sequence);
      RETURN_IF_ERROR(Join(slot, std::move(sequence)));
    }
    for (int step = 0; step < kSteps; ++step) {
      // Chooses the rows of the step: slots in random order, with padding rows (-1) among them.
      std::vector<int> slots = {0, 1, 2, 3, 4, 5, -1, -1};
      std::shuffle(slots.begin(), slots.end(), chance_.random());
      slots.resize(chance_.Pick(1, 4, kMaxRows));
      if (step > 0) {  // samples for sequences 0 to 2 again, as far as there are rows
        for (int i = 0; i < 3 && i < static_cast<int>(slots.size()); ++i) {
          if (std::find(slots.begin(), slots.end(), i) == slots.end()) slots[i] = i;
        }
      }
      RETURN_IF_ERROR(StartStep(slots));
      // Gives a slot to a new sequence while steps of the old one may not have run yet.
      RETURN_IF_ERROR(JoinAnew(chance_.Below(kSlots), step));
      if (step > 0) RETURN_IF_ERROR(FinishStep());
    }
    return FinishStep();
  }

  absl::Status Join(int slot, Sequence sequence) {
    if (!sampler_->CanSample(sequence.options, 250)) return absl::DataLossError("refused");
    sequences_[slot] = std::move(sequence);
    return sampler_->Join(slot, sequences_[slot].options, sequences_[slot].history.get());
  }
  // Gives the slot to a new sequence. Does nothing for slots 0 to 2 in step 0: the next step
  // samples for their sequences again, to test that their penalties grow.
  absl::Status JoinAnew(int slot, int step) {
    if (slot < 3 && step == 0) return absl::OkStatus();
    return Join(slot, SomeSequence(chance_, slot, vocab_));
  }

  // Starts a step for the sequences in `slots`. Sampler computes the expected tokens first.
  absl::Status StartStep(const std::vector<int>& slots) {
    std::vector<float> logits(size_t{kMaxRows} * vocab_, NAN);
    std::vector<DeviceSampler::Row> rows;
    std::vector<std::optional<absl::StatusOr<SampledToken>>> expected;
    for (size_t r = 0; r < slots.size(); ++r) {
      if (slots[r] < 0) {
        rows.push_back({.slot = -1});
        expected.emplace_back();
        continue;
      }
      Sequence& sequence = sequences_[slots[r]];
      const auto own = absl::MakeSpan(logits).subspan(r * vocab_, vocab_);
      const bool close = slots[r] == i_ % 3 && chance_.Below(3) > 0;
      FillLogits(chance_, close ? kClose : chance_.Below(14), own);
      const int position = static_cast<int>(sequence.tokens.size());
      rows.push_back({slots[r], position, position - sequence.prompt});
      expected.push_back(host_.Sample(own, sequence.options, position, rows.back().generated,
                                      sequence.history.get()));
      if (!(*expected.back()).ok()) continue;
      sequence.tokens.push_back((*expected.back())->id);
      sequence.history->Append((*expected.back())->id);
    }
    expected_.push_back(std::move(expected));
    ASSIGN_OR_RETURN(const auto needs, sampler_->Prepare(rows));
    std::vector<int32_t> tokens(kMaxRows, kPoison);
    RETURN_IF_ERROR(
        runtime_->Copy(logits_, logits.data(), logits.size() * sizeof(float), *stream_));
    RETURN_IF_ERROR(
        runtime_->Copy(tokens_, tokens.data(), tokens.size() * sizeof(int32_t), *stream_));
    RETURN_IF_ERROR(Enqueue(needs));
    return sampler_->Fetch();
  }

  // Enqueues one step. In cases with an odd number i_, the first step is captured as a graph, and
  // this graph runs all steps.
  absl::Status Enqueue(const DeviceSampler::Needs& needs) {
    const auto enqueue = [&](const DeviceSampler::Needs& asked) {
      return sampler_->Enqueue(reinterpret_cast<float*>(logits_),
                               reinterpret_cast<int32_t*>(tokens_), kMaxRows, asked);
    };
    if (i_ % 2 == 0) return enqueue(needs);
    if (graph_ == nullptr) {
      RETURN_IF_ERROR(runtime_->BeginCapture(*stream_));
      const absl::Status status = enqueue({true, true, true});
      auto graph = runtime_->EndCapture(*stream_);
      RETURN_IF_ERROR(status);
      RETURN_IF_ERROR(graph.status());
      graph_ = *std::move(graph);
    }
    return runtime_->Replay(*graph_, *stream_);
  }

  absl::Status FinishStep() {
    ASSIGN_OR_RETURN(const auto sampled, sampler_->Take());
    const bool latest = taken_ + 1 == static_cast<int>(expected_.size());
    const auto& expected = expected_[taken_++];
    if (sampled.size() != expected.size()) return absl::DataLossError("rows are missing");
    std::vector<int32_t> tokens(kMaxRows);
    if (latest) {
      RETURN_IF_ERROR(
          runtime_->Copy(tokens.data(), tokens_, tokens.size() * sizeof(int32_t), *stream_));
    }
    for (int r = 0; r < kMaxRows; ++r) {
      const bool nobody = r >= static_cast<int>(expected.size()) || !expected[r];
      if (!nobody && !Same(sampled[r], *expected[r])) {
        return absl::DataLossError(absl::StrCat("row ", r, ", vocabulary of ", vocab_, ": ",
                                                Text(sampled[r]), "; expected ",
                                                Text(*expected[r])));
      }
      const int token = nobody ? kPoison : expected[r]->ok() ? (*expected[r])->id : 0;
      if (latest && tokens[r] != token) {
        return absl::DataLossError(
            absl::StrCat("row ", r, " left token ", tokens[r], "; expected ", token));
      }
    }
    return absl::OkStatus();
  }

  DeviceRuntime* const runtime_;
  const KernelTable kernels_;
  const int i_;
  Chance chance_;
  int vocab_ = 0;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<DeviceSampler> sampler_;
  std::unique_ptr<DeviceGraph> graph_;
  std::byte* logits_ = nullptr;
  std::byte* tokens_ = nullptr;
  std::vector<Sequence> sequences_;
  Sampler host_;
  // Expected results: one entry per step, each with one entry per row.
  std::vector<std::vector<std::optional<absl::StatusOr<SampledToken>>>> expected_;
  int taken_ = 0;
};

}  // namespace

absl::Status RunSampleCase(DeviceRuntime* runtime, const KernelTable& kernels, int i) {
  const absl::Status status = Sampled(runtime, kernels, i).Run();
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("case ", i, ": ", status.message()));
}

}  // namespace baton
