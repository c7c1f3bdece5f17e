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
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/sample_kernels.h"
#include "kernels/cuda/upload_slab.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

struct DeviceSamplerOptions {
  DeviceRuntime* runtime = nullptr;  // runtime, stream and kernels must outlive the sampler
  DeviceStream* stream = nullptr;    // stream for all kernels and copies
  const KernelTable* kernels = nullptr;
  int vocab = 0;     // at most kMaxSampleVocab
  int max_rows = 0;  // max rows of a step
  int slots = 0;     // max sequences that have a slot at the same time
  // max distinct tokens in the history of a slot with penalties; at most vocab
  int history_tokens = 0;
};

// Samples tokens on the device that holds their logits. The results are the same, bit for bit, as
// those of Sampler (common/sampling/sampler.h) from the same logits, options, seed and position.
// This includes logprobs, ties, and the errors for invalid logits. Not thread-safe.
//
// A sequence joins a slot with its options and, if it has penalties, with its tokens so far. Each
// token that is sampled for the sequence is appended to the slot's history on the device, so the
// host may be one step behind. A step has these calls:
//
//   Prepare(rows)        uploads the options of the rows; not while a graph is captured
//   Enqueue(logits, ...) launches kernels only, with grids that depend on `rows` and `needs`; may
//                        be captured. The graph may be replayed after a later Prepare if the needs
//                        passed to Enqueue cover those that Prepare returned (Needs::Covers)
//   Fetch()              starts to copy the results to pinned memory; not captured
//   Take()               waits for the oldest fetched step, and returns its tokens
//
// All calls except Take return before their work has run. Join and Prepare wait only if four of
// their copies are still running. Two steps may be fetched and not yet taken while a third one is
// prepared. Nothing is allocated after Create.
//
// Device memory: for each slot 14 KiB and 12 bytes per history token; for each row 13 KiB and 1/10
// byte per token of the vocabulary. 256 slots of 8,192 tokens take 29 MB; 256 rows with a
// vocabulary of 128k take 6 MB. Pinned memory: 1 KiB per row, and four times the bytes of a slot.
class DeviceSampler {
 public:
  static constexpr int kInFlight = 2;

  // Returns InvalidArgument for sizes below 1 or above the limits in DeviceSamplerOptions, and
  // ResourceExhausted if there is too little memory.
  static absl::StatusOr<std::unique_ptr<DeviceSampler>> Create(const DeviceSamplerOptions& options);
  // Bytes of each allocation of device memory that Create makes.
  static std::vector<size_t> Allocations(const DeviceSamplerOptions& options);
  ~DeviceSampler();
  DeviceSampler(const DeviceSampler&) = delete;
  DeviceSampler& operator=(const DeviceSampler&) = delete;

  // Returns false if only the host can sample with these options: bad_words of more than one token,
  // lists beyond the limits of SamplingOptions, or penalties of a sequence that may get more than
  // history_tokens distinct tokens. `reach` is the max number of tokens of prompt and answer
  // together.
  bool CanSample(const SamplingOptions& options, int reach) const;

  // Assigns the slot to a sequence with these options and tokens, even if another sequence has the
  // slot. Steps that were enqueued for the other sequence still run correctly. `history` may be
  // null only if !options.LooksBack(). Returns InvalidArgument for a slot that does not exist and
  // for options that CanSample refuses. Nothing needs to be called when a sequence ends.
  absl::Status Join(int slot, const SamplingOptions& options, const TokenHistory* history);

  struct Row {
    int slot = -1;      // -1: a padding row, for which nothing is sampled
    int position = 0;   // absolute position of the token to sample
    int generated = 0;  // tokens generated for the answer before this one
  };
  // Work that some rows need besides finding the largest logit. Kernels that no row needs are not
  // launched.
  struct Needs {
    bool samples = false;   // some row has a temperature above 0
    bool edits = false;     // some row has bias, penalties or banned tokens
    bool logprobs = false;  // some row wants logprobs or alternatives
    // Returns true if kernels enqueued for these needs also suffice for the needs `other`.
    bool Covers(const Needs& other) const {
      return samples >= other.samples && edits >= other.edits && logprobs >= other.logprobs;
    }
  };
  // Prepares the rows of the next step, at most max_rows. If Enqueue is called with more rows, the
  // additional ones are padding rows. Returns InvalidArgument, and prepares nothing, if a row's
  // slot has no sequence or if two rows have the same slot.
  absl::StatusOr<Needs> Prepare(absl::Span<const Row> rows);

  // Enqueues the kernels for the rows of the latest Prepare. Both arrays are in device memory.
  //   logits  [rows, vocab] f32, without padding. Bias, penalties and bans change the logits
  //   tokens  [rows] int32. Gets the token of each row, or 0 if the row has none. The next step may
  //           read it. Entries of padding rows are not changed
  // `rows` is at least the number of prepared rows.
  absl::Status Enqueue(float* logits, int32_t* tokens, int rows, const Needs& needs);

  // Starts to copy the results of the latest Enqueue, or of the latest replay of its graph, to the
  // host. Returns FailedPrecondition if two steps are fetched and not yet taken.
  absl::Status Fetch();

  // Returns one entry for each row that was prepared for the step, in order. The entry of a padding
  // row is FailedPrecondition; other errors of a row are those of Sampler::Sample. Take itself
  // returns FailedPrecondition if nothing was fetched.
  absl::StatusOr<std::vector<absl::StatusOr<SampledToken>>> Take();

 private:
  // Options of a slot's sequence, in the form in which kernels read them.
  struct Slot {
    bool joined = false;
    SampleRow row;  // complete except for values that change with each step
    uint64_t seed = 0;
    uint32_t answer_index = 0;
    int min_tokens = 0;
    int stops = 0;  // number of tokens that are banned only until min_tokens tokens are generated
  };
  struct Fetched {
    std::vector<Row> rows;
    std::vector<int> alternatives;  // number of alternatives of each row; -1: no logprobs
    bool logprobs = false;          // true if some row has logprobs
    std::unique_ptr<DeviceEvent> event;
  };

  explicit DeviceSampler(const DeviceSamplerOptions& options);
  absl::Status Allocate();
  size_t PinnedBytes() const;  // bytes of one step's results
  absl::Status CollectHistory(const TokenHistory& history, std::vector<SampleHistory>* tokens);
  absl::Status UploadLists(int slot, const std::vector<SampleBias>& biases,
                           const std::vector<int32_t>& bans,
                           const std::vector<SampleHistory>* history);
  absl::StatusOr<SampledToken> Decode(int position, const SampleResult& result,
                                      const SampleAlternative* alternatives, int count) const;

  const DeviceSamplerOptions options_;
  SampleMemory memory_ = {};  // arrays in device memory
  std::vector<std::byte*> device_;
  // kInFlight buffers, one for each step in flight. A buffer holds the results of max_rows rows,
  // then their alternatives.
  std::byte* pinned_ = nullptr;
  UploadSlab rows_slab_, slot_slab_;
  std::vector<Slot> slots_;
  std::vector<Row> prepared_;
  Needs needs_;  // needs of the prepared rows
  std::vector<SampleRow> content_;
  std::vector<std::byte> slot_content_;
  std::vector<int> place_of_token_;  // [vocab]
  std::vector<int> used_;            // for each slot, the number of the latest Prepare that used it
  int prepares_ = 0;
  Fetched fetched_[kInFlight];
  int oldest_ = 0, waiting_ = 0;  // the oldest entry of fetched_, and the number of fetched steps
};

}  // namespace baton
