#include "kernels/cuda/step_upload.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/kernels/launches.h"

namespace baton {
namespace {

constexpr size_t kWords = sizeof(DeviceSequence) / sizeof(int32_t);
constexpr size_t kRopeWords = sizeof(DeviceRope) / sizeof(int32_t);
static_assert(sizeof(BlockId) == sizeof(int32_t) && sizeof(TokenId) == sizeof(int32_t));
static_assert(sizeof(DeviceSequence) == kWords * sizeof(int32_t) && kWords == 4);
static_assert(sizeof(DeviceRope) == kRopeWords * sizeof(int32_t) && sizeof(float) == 4);

}  // namespace

absl::Status StepUpload::Reserve(const StepMemory& memory) {
  table_of_rows_ = 0;
  RETURN_IF_ERROR(step_slab_.Reserve(memory.step));
  return table_.AtLeast(memory.rope_table).status();
}

// Writes to content_: from index `owners` on, the index of each row's sequence; from index `places`
// on, the sequences; at the end, the block tables. A sequence refers to its block table by the
// table's index in content_, minus `tables`.
absl::Status StepUpload::PutRows(absl::Span<const SequenceRows> sequences, int rows,
                                 const KvLayout& layout, size_t owners, size_t places,
                                 size_t tables) {
  std::fill_n(content_.begin() + owners, rows, -1);
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceRows& sequence = sequences[s];
    for (int row = sequence.first_row; row < sequence.first_row + sequence.rows; ++row) {
      int32_t& owner = content_[owners + row];
      if (owner >= 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("row ", row, " is sequence ", owner, "'s and sequence ", s, "'s"));
      }
      owner = static_cast<int32_t>(s);
    }
    const DeviceSequence at = {.first_row = sequence.first_row,
                               .rows = sequence.rows,
                               .first_position = sequence.first_position,
                               .first_block = static_cast<int32_t>(content_.size() - tables)};
    std::memcpy(&content_[places + kWords * s], &at, sizeof(at));
    if (sequence.rows == 0) continue;
    const int needed = layout.BlocksFor(sequence.first_position + sequence.rows);
    content_.insert(content_.end(), sequence.blocks.begin(), sequence.blocks.begin() + needed);
  }
  return absl::OkStatus();
}

// Writes the ropes to content_, the array to upload: a DeviceRope for each from index `heads` on,
// and their frequencies at the end. A DeviceRope has the index of its frequencies, counted from
// index `frequencies`. Ropes with the same array of frequencies share one copy. Sets
// ropes_.max_pairs and ropes_.shared.
void StepUpload::PutRopes(absl::Span<const Rope> ropes, size_t heads, size_t frequencies) {
  ropes_.max_pairs = 0;
  ropes_.shared = ropes.size() == 1;
  for (size_t i = 0; i < ropes.size(); ++i) {
    BATON_CHECK(!ropes[i].interleaved) << "this backend copies weights, so their rows are in order";
    const absl::Span<const float> own = ropes[i].inverse_frequency;
    DeviceRope rope = {.pairs = static_cast<int32_t>(own.size()), .scale = ropes[i].scale};
    size_t same = 0;
    while (same < i && (ropes[same].inverse_frequency.data() != own.data() ||
                        ropes[same].inverse_frequency.size() != own.size())) {
      ++same;
    }
    if (same < i) {
      DeviceRope first;
      std::memcpy(&first, &content_[heads + kRopeWords * same], sizeof(first));
      rope.first_frequency = first.first_frequency;
    } else {
      const size_t at = content_.size();
      rope.first_frequency = static_cast<int32_t>(at - frequencies);
      content_.resize(at + own.size());
      std::memcpy(&content_[at], own.data(), own.size() * sizeof(float));
    }
    std::memcpy(&content_[heads + kRopeWords * i], &rope, sizeof(rope));
    ropes_.max_pairs = std::max(ropes_.max_pairs, rope.pairs);
  }
}

absl::StatusOr<const int32_t*> StepUpload::Upload(UploadSlab* slab) {
  ASSIGN_OR_RETURN(const auto uploaded, slab->Upload(absl::MakeConstSpan(
                                            reinterpret_cast<const std::byte*>(content_.data()),
                                            content_.size() * sizeof(int32_t))));
  return reinterpret_cast<const int32_t*>(uploaded);
}

// Uploads one array with these parts: tokens, `follows`, the sequence of each row, sequences,
// ropes, logit rows, and last the frequencies and block tables, because their length varies. A rope
// has the index of its frequencies, and a sequence that of its block table. Both indices count from
// the beginning of the frequencies.
absl::Status StepUpload::Begin(const StepArgs& step, absl::Span<const TokenId> tokens, bool fixed) {
  rows_slab_version_ = ropes_slab_version_ = 0;
  ++rows_version_;
  ++ropes_version_;
  const size_t rows = tokens.size();
  const size_t sequences = fixed ? rows : step.sequences.size();
  const size_t ropes = step.ropes.size() == 1 ? 1 : sequences;
  const size_t follows = rows, owners = 2 * rows, places = 3 * rows;
  const size_t heads = places + kWords * sequences, logit_rows = heads + kRopeWords * ropes;
  const size_t end = logit_rows + (fixed ? 0 : step.logit_rows.size());
  content_.assign(end, 0);
  std::copy(tokens.begin(), tokens.end(), content_.begin());
  std::fill_n(content_.begin() + follows, rows, -1);
  std::copy(step.follows.begin(), step.follows.end(), content_.begin() + follows);
  if (!fixed) {
    std::copy(step.logit_rows.begin(), step.logit_rows.end(), content_.begin() + logit_rows);
  }
  PutRopes(step.ropes, heads, end);
  RETURN_IF_ERROR(
      PutRows(step.sequences, static_cast<int>(rows), step.kv.layout, owners, places, end));
  ASSIGN_OR_RETURN(const auto uploaded, Upload(&step_slab_));
  const int32_t* const device = uploaded;
  tables_ = {.tokens = device, .follows = device + follows, .logit_rows = device + logit_rows};
  rows_ = {.sequence_of_row = device + owners,
           .sequences = reinterpret_cast<const DeviceSequence*>(device + places),
           .blocks = device + end,
           .rows = static_cast<int>(rows)};
  ropes_.ropes = reinterpret_cast<const DeviceRope*>(device + heads);
  frequencies_ = reinterpret_cast<const float*>(device + end);
  return absl::OkStatus();
}

void StepUpload::AppendMemory(std::vector<uint64_t>* memory) const {
  for (const void* at :
       {static_cast<const void*>(tables_.tokens), static_cast<const void*>(table_.data())}) {
    memory->push_back(reinterpret_cast<uintptr_t>(at));
  }
  memory->push_back(uint64_t{2} * ropes_.max_pairs + ropes_.shared);
}

absl::StatusOr<StepRows> StepUpload::Rows(absl::Span<const SequenceRows> sequences, int rows,
                                          const KvLayout& layout) {
  // Layout of `content_`: the number of rows, the sequence of each row, the sequences, and their
  // block tables.
  const size_t places = 1 + rows, tables = places + kWords * sequences.size();
  content_.assign(tables, 0);
  content_[0] = rows;
  RETURN_IF_ERROR(PutRows(sequences, rows, layout, 1, places, tables));
  ASSIGN_OR_RETURN(const auto uploaded, Upload(&rows_slab_));
  const int32_t* const device = uploaded;
  if (rows_slab_version_ != rows_slab_.version()) {
    rows_slab_version_ = rows_slab_.version();
    ++rows_version_;
  }
  rows_ = {.sequence_of_row = device + 1,
           .sequences = reinterpret_cast<const DeviceSequence*>(device + places),
           .blocks = device + tables,
           .rows = rows};
  return rows_;
}

absl::Status StepUpload::UploadRopes(absl::Span<const Rope> ropes) {
  const size_t head = kRopeWords * ropes.size();
  content_.assign(head, 0);
  PutRopes(ropes, 0, head);
  ASSIGN_OR_RETURN(const auto uploaded, Upload(&ropes_slab_));
  if (ropes_slab_version_ != ropes_slab_.version()) {
    ropes_slab_version_ = ropes_slab_.version();
    ++ropes_version_;
  }
  ropes_.ropes = reinterpret_cast<const DeviceRope*>(uploaded);
  frequencies_ = reinterpret_cast<const float*>(uploaded + head);
  return absl::OkStatus();
}

absl::StatusOr<StepUpload::Ropes> StepUpload::RopeTable() {
  if (table_of_rows_ == rows_version_ && table_of_ropes_ == ropes_version_) return ropes_;
  table_of_rows_ = 0;  // stays 0 if computing the table fails
  ASSIGN_OR_RETURN(const auto table,
                   table_.AtLeast(size_t{2} * rows_.rows * ropes_.max_pairs * sizeof(float)));
  ropes_.table = reinterpret_cast<const float*>(table);
  const RopeTableParams params = {
      .step = rows_,
      .ropes = ropes_.ropes,
      .frequencies = frequencies_,
      .table = reinterpret_cast<float*>(table),
      .max_pairs = ropes_.max_pairs,
      .shared = ropes_.shared,
  };
  RETURN_IF_ERROR(runtime_->Launch(kernels_->rope_table, LaunchOf(params), params, *stream_));
  table_of_rows_ = rows_version_;
  table_of_ropes_ = ropes_version_;
  return ropes_;
}

}  // namespace baton
