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

// What steps draw, by DeviceSampler, and what the rows of the next one follow. Calls for one step:
// Prepare, Enqueue, Fetch; Take once it is to be finished, oldest first. Memory is taken by
// Reserve, or when a step draws for the first time, and stays where it is.
class StepDraws {
 public:
  // All must outlive this.
  StepDraws(DeviceRuntime* runtime, DeviceStream* stream, const KernelTable* kernels)
      : runtime_(runtime), stream_(stream), kernels_(kernels), tokens_(runtime) {}

  // Bytes of every piece of device memory that Reserve takes; none for what can't be drawn from.
  static std::vector<size_t> Allocations(int rows, int vocab);
  // For steps that draw from up to `rows` rows of `vocab` logits. Nothing, if there was room for
  // them or the vocabulary can't be drawn from; otherwise no step is running. ResourceExhausted.
  absl::Status Reserve(int rows, int vocab);

  // Uploads how the step's rows are drawn. `recorded_rows`: of a step of those that are recorded,
  // which have the kernels even if nothing is drawn; 0: it is none. InvalidArgument: a row follows
  // one that the step before did not draw; more rows, or another vocabulary, than memory was taken
  // for.
  absl::Status Prepare(const StepArgs& step, int recorded_rows);
  // Kernels alone. `logits` [rows, vocab] in device memory, `rows` at least those that were
  // prepared; nothing if nothing is to be drawn.
  absl::Status Enqueue(float* logits, int rows);
  // Nothing if the step draws nothing.
  absl::Status Fetch();
  // The prepared step did not start: its slots know nothing. If some of it was put on the stream,
  // nothing follows the one before either.
  void Drop(bool is_put);
  // Waits until the oldest step that is fetched and not yet taken has run, and puts its tokens into
  // `drawn`. Only for steps that drew something.
  absl::Status Take(absl::Span<DrawnToken> drawn);

  // By logit row of the step before. Null before the first draw.
  const int32_t* tokens() const { return reinterpret_cast<const int32_t*>(tokens_.data()); }
  // What Enqueue of a recorded step is given beside its arguments, and which kernels it puts.
  void AppendMemory(std::vector<uint64_t>* memory) const;
  int variant() const {
    return enqueues_ ? 8 + 4 * needs_.draws + 2 * needs_.edits + needs_.logprobs : 0;
  }

 private:
  struct Slot {
    void Keep(const DrawOptions& of);

    bool joined = false;
    DrawOptions draw;  // its latest; views are of the vectors below
    std::vector<std::pair<TokenId, float>> bias;
    std::vector<TokenId> banned, stop_tokens;
    int next_position = 0;  // of the token that is drawn next, if the history is to be complete
    uint64_t step = 0;      // that had it last
  };

  absl::Status CheckFollows(const StepArgs& step) const;
  absl::Status Create(int rows, int vocab);
  bool Knows(const Slot& slot, const DrawOptions& draw) const;
  absl::StatusOr<int> SlotFor(const DrawOptions& draw, bool follows);

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  const KernelTable* const kernels_;
  std::unique_ptr<DeviceSampler> sampler_;
  DeviceBuffer tokens_;  // [most_rows_] int32
  int vocab_ = 0, most_rows_ = 0;
  uint64_t samplers_ = 0;  // that there were
  std::vector<Slot> slots_;
  uint64_t step_ = 0;
  DeviceSampler::Needs needs_;               // of the prepared step
  bool enqueues_ = false, fetches_ = false;  // the prepared step
  std::vector<DeviceSampler::Row> rows_;     // of the prepared step
  // Whether each logit row of the prepared step is drawn, and of the latest that started.
  std::vector<bool> drawn_, latest_;
};

}  // namespace baton
