#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampling_options.h"
#include "common/sampling/token_history.h"
#include "kernels/cuda/kernels/draw_kernels.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/upload_slab.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

struct DeviceSamplerOptions {
  DeviceRuntime* runtime = nullptr;  // all must outlive the sampler
  DeviceStream* stream = nullptr;    // what everything is put on
  const KernelTable* kernels = nullptr;
  int vocab = 0;           // at most kMostDrawVocab
  int max_rows = 0;        // of a step
  int slots = 0;           // sequences that are drawn for at once
  int history_tokens = 0;  // distinct tokens that penalties count, of each; at most vocab
};

// Draws tokens where their logits are, the same as Sampler (common/sampling/sampler.h) does from
// the same logits, options, seed and position, with the same logprobs: bit for bit, ties and
// unsound logits included. One thread.
//
// A sequence joins a slot with its options and what penalties have to know of its tokens; what is
// drawn for it is appended there on the device, so the host may be a step behind. A step is
//
//   Prepare(rows)            uploads what the rows ask; not while a graph is captured
//   Enqueue(logits, ...)     kernels alone, of a grid that `rows` and `needs` decide: may be
//   captured,
//                            and replayed after each Prepare whose needs are among those captured
//   Fetch()                  starts the way of the results to pinned memory; not captured
//   Take()                   waits for the oldest step fetched, and gives its tokens
//
// all but Take returning before anything has run (Join and Prepare wait when four of their copies
// are under way). Two steps may be fetched and not yet taken, and a third prepared. Nothing is
// allocated after Create.
//
// Device memory: for each slot 14 KiB and 12 bytes a history token; for each row 13 KiB and 1/10
// byte a token of the vocabulary. 256 slots of 8,192 tokens take 29 MB, 256 rows of 128k 6 MB. In
// pinned memory, 1 KiB a row and four times what a slot takes.
class DeviceSampler {
 public:
  static constexpr int kInFlight = 2;

  // InvalidArgument for sizes below 1 or beyond the above; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<DeviceSampler>> Create(const DeviceSamplerOptions& options);
  // Bytes of every piece of device memory that Create takes.
  static std::vector<size_t> Allocations(const DeviceSamplerOptions& options);
  ~DeviceSampler();
  DeviceSampler(const DeviceSampler&) = delete;
  DeviceSampler& operator=(const DeviceSampler&) = delete;

  // False: the host draws. Not drawn here: bad_words of more than one token; and penalties of a
  // sequence whose prompt and answer may become longer than history_tokens, `reach` in all, unless
  // these are as many as the vocabulary has.
  bool CanDraw(const SamplingOptions& options, int reach) const;

  // From now on the slot is this sequence's, whoever had it: its steps that are on the stream
  // already are not disturbed. `history` must be there where options.LooksBack(). InvalidArgument
  // for a slot that is none, and what CanDraw refuses. Nothing need be done when a sequence leaves.
  absl::Status Join(int slot, const SamplingOptions& options, const TokenHistory* history);

  struct Row {
    int slot = -1;      // -1: a row that is nobody's, for which nothing is drawn
    int position = 0;   // absolute, of the token to draw
    int generated = 0;  // tokens of the answer before it
  };
  // What some rows need besides the largest logit. What is not there costs no launch.
  struct Needs {
    bool draws = false;     // a temperature
    bool edits = false;     // bias, penalties, banned tokens
    bool logprobs = false;  // or alternatives
    // Whether kernels enqueued for this serve rows that need `other`.
    bool Covers(const Needs& other) const {
      return draws >= other.draws && edits >= other.edits && logprobs >= other.logprobs;
    }
  };
  // Of the next step; at most max_rows, further ones of the grid are nobody's. InvalidArgument for
  // a slot that nobody joined or that two rows have, and then nothing is prepared.
  absl::StatusOr<Needs> Prepare(absl::Span<const Row> rows);

  //   logits  [rows, vocab] f32, without padding; afterwards as bias, penalties and bans left them
  //   tokens  [rows] int32, of each row that is somebody's the token, 0 where there is none; others
  //           stay. May be what the next step reads
  // All device memory. Takes the rows of the latest Prepare, `rows` at least as many.
  absl::Status Enqueue(float* logits, int32_t* tokens, int rows, const Needs& needs);

  // Of the latest Enqueue (or replay of it). FailedPrecondition when two wait to be taken.
  absl::Status Fetch();

  // One entry per row of the step's Prepare, in order; of rows that are nobody's,
  // FailedPrecondition. Errors of a row are those of Sampler::Sample. FailedPrecondition when
  // nothing was fetched.
  absl::StatusOr<std::vector<absl::StatusOr<SampledToken>>> Take();

 private:
  // What a slot's sequence asks, as rows have it.
  struct Slot {
    bool joined = false;
    DrawRow row;  // all but what a step says
    uint64_t seed = 0;
    uint32_t answer_index = 0;
    int min_tokens = 0;
    int stops = 0;  // of the banned tokens, those that are only while min_tokens are not there
  };
  struct Fetched {
    std::vector<Row> rows;
    std::vector<int> alternatives;  // of each row; -1: no logprobs
    bool logprobs = false;          // of some row
    std::unique_ptr<DeviceEvent> event;
  };

  explicit DeviceSampler(const DeviceSamplerOptions& options);
  absl::Status Allocate();
  size_t PinnedBytes() const;  // of one step's results
  absl::Status CollectHistory(const TokenHistory& history, std::vector<DrawHistory>* tokens);
  absl::Status UploadLists(int slot, const std::vector<DrawBias>& biases,
                           const std::vector<int32_t>& bans,
                           const std::vector<DrawHistory>* history);
  absl::StatusOr<SampledToken> Decode(int position, const DrawResult& result,
                                      const DrawAlternative* alternatives, int count) const;

  const DeviceSamplerOptions options_;
  DrawMemory memory_ = {};  // the device's
  std::vector<std::byte*> device_;
  std::byte* pinned_ = nullptr;  // [kInFlight]: results, then alternatives, of max_rows
  UploadSlab rows_slab_, slot_slab_;
  std::vector<Slot> slots_;
  std::vector<Row> prepared_;
  Needs needs_;  // of the prepared rows
  std::vector<DrawRow> content_;
  std::vector<std::byte> slot_content_;
  std::vector<int> place_of_token_;  // [vocab]
  std::vector<int> used_;            // by slot, the latest Prepare that had it
  int prepares_ = 0;
  Fetched fetched_[kInFlight];
  int oldest_ = 0, waiting_ = 0;  // of fetched_
};

}  // namespace baton
