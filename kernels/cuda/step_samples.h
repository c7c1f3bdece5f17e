#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend/backend.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_sampler.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Samples the tokens of steps with DeviceSampler. Keeps the tokens on the device, because rows of
// the next step may take them as input (StepArgs::follows). Call Prepare, Enqueue and Fetch for
// each step. Each call of Take finishes the oldest step that was fetched. Memory is allocated by
// Reserve, or else by the first step that samples, and does not move later.
class StepSamples {
 public:
  // The arguments must outlive this object.
  StepSamples(DeviceRuntime* runtime, DeviceStream* stream, const KernelTable* kernels)
      : runtime_(runtime), stream_(stream), kernels_(kernels), tokens_(runtime) {}

  // Returns the bytes of each allocation of device memory that Reserve makes. Returns an empty list
  // if the vocabulary is too large to sample from.
  static std::vector<size_t> Allocations(int rows, int vocab);
  // Allocates memory for steps that sample from up to `rows` rows of `vocab` logits. Does nothing
  // if there is enough already, or if the vocabulary is too large to sample from. If it allocates,
  // no step may be running. Returns ResourceExhausted if there is too little memory.
  absl::Status Reserve(int rows, int vocab);

  // Uploads the options of the step's rows. If the step may be recorded, `recorded_rows` is its
  // padded number of rows, and kernels are enqueued even if the step samples nothing. Otherwise
  // `recorded_rows` is 0. Returns InvalidArgument if a row needs a token (StepArgs::follows) that
  // the previous step has not sampled. Also returns InvalidArgument for more rows, or another
  // vocabulary, than memory was allocated for.
  absl::Status Prepare(const StepArgs& step, int recorded_rows);
  // Launches kernels and does nothing else; launches none if Prepare found nothing to enqueue.
  // `logits` is [rows, vocab] in device memory. `rows` is at least the number of prepared rows.
  absl::Status Enqueue(float* logits, int rows);
  // Starts to copy the sampled tokens to the host. Copies nothing if the step samples nothing.
  absl::Status Fetch();
  // Undoes Prepare for a step that could not be started. The options of the step's sequences are
  // uploaded again when a token is next sampled for them. `is_put` is true if a part of the step
  // was enqueued: then rows of the next step can't follow rows of an earlier step.
  void Drop(bool is_put);
  // Waits for the oldest step for which Fetch was called and Take was not, and writes its tokens to
  // `sampled`. May be called only for steps that sampled a token.
  absl::Status Take(absl::Span<BackendSample> sampled);

  // Tokens sampled by the latest step, by logit row. Null before the first sample.
  const int32_t* tokens() const { return reinterpret_cast<const int32_t*>(tokens_.data()); }
  // AppendMemory appends the values that a recorded step uses besides the arguments of Enqueue. If
  // one of these values changes, the step's graph is no longer valid. variant() identifies the
  // kernels that Enqueue launches.
  void AppendMemory(std::vector<uint64_t>* memory) const;
  int variant() const {
    return enqueues_ ? 8 + 4 * needs_.samples + 2 * needs_.edits + needs_.logprobs : 0;
  }

 private:
  struct Slot {
    void Keep(const SampleOptions& of);

    bool joined = false;
    SampleOptions sample;  // options of the latest sample; views point to the vectors below
    std::vector<std::pair<TokenId, float>> bias;
    std::vector<TokenId> banned, stop_tokens;
    // Position of the next token; the slot's history is complete up to there.
    int next_position = 0;
    uint64_t step = 0;  // number of the latest step that used this slot
  };

  absl::Status CheckFollows(const StepArgs& step) const;
  absl::Status Create(int rows, int vocab);
  bool Knows(const Slot& slot, const SampleOptions& sample) const;
  absl::StatusOr<int> SlotFor(const SampleOptions& sample, bool follows);

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  const KernelTable* const kernels_;
  std::unique_ptr<DeviceSampler> sampler_;
  DeviceBuffer tokens_;  // [max_rows_] int32
  int vocab_ = 0, max_rows_ = 0;
  uint64_t samplers_ = 0;  // number of samplers created so far
  std::vector<Slot> slots_;
  uint64_t step_ = 0;
  DeviceSampler::Needs needs_;  // needs of the prepared step
  // enqueues_ is true if the prepared step enqueues kernels, fetches_ if it fetches sampled tokens.
  bool enqueues_ = false, fetches_ = false;
  std::vector<DeviceSampler::Row> rows_;  // rows of the prepared step
  // For each logit row, true if a token is sampled for it. sampled_ belongs to the prepared step,
  // latest_ to the latest step that started.
  std::vector<bool> sampled_, latest_;
};

}  // namespace baton
