#include "kernels/cuda/step_upload.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/launches.h"

namespace baton {

static_assert(sizeof(BlockId) == sizeof(int32_t) && sizeof(TokenId) == sizeof(int32_t));
static_assert(sizeof(DeviceSequence) == 3 * sizeof(int32_t));

namespace {

template <typename T>
bool SameView(absl::Span<const T> a, absl::Span<const T> b) {
  return !a.empty() && a.data() == b.data() && a.size() == b.size();
}

}  // namespace

void StepUpload::ForgetViews() {
  rows_view_ = {};
  ropes_view_ = {};
}

// One array: how many rows, the sequence of each, the sequences, their block tables.
absl::StatusOr<StepRows> StepUpload::Rows(absl::Span<const SequenceRows> sequences, int rows,
                                          const KvLayout& layout) {
  if (SameView(sequences, rows_view_) && rows == rows_.rows &&
      layout.block_tokens == block_tokens_) {
    return rows_;
  }
  rows_view_ = {};
  constexpr int kWords = sizeof(DeviceSequence) / sizeof(int32_t);
  std::vector<int32_t>& content = rows_content_;
  const size_t places = 1 + rows, tables = places + kWords * sequences.size();
  content.assign(tables, -1);
  content[0] = rows;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceRows& sequence = sequences[s];
    for (int row = sequence.first_row; row < sequence.first_row + sequence.rows; ++row) {
      int32_t& owner = content[1 + row];
      if (owner >= 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("row ", row, " is sequence ", owner, "'s and sequence ", s, "'s"));
      }
      owner = static_cast<int32_t>(s);
    }
    int32_t* const place = &content[places + kWords * s];
    place[0] = sequence.first_row;
    place[1] = sequence.first_position;
    place[2] = static_cast<int32_t>(content.size() - tables);
    if (sequence.rows == 0) continue;
    const int needed = layout.BlocksFor(sequence.first_position + sequence.rows);
    content.insert(content.end(), sequence.blocks.begin(), sequence.blocks.begin() + needed);
  }
  const auto uploaded = rows_slab_.Upload(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(content.data()), content.size() * sizeof(int32_t)));
  if (!uploaded.ok()) return uploaded.status();
  const int32_t* const device = reinterpret_cast<const int32_t*>(*uploaded);
  rows_ = {.sequence_of_row = device + 1,
           .sequences = reinterpret_cast<const DeviceSequence*>(device + places),
           .blocks = device + tables,
           .rows = rows};
  rows_view_ = sequences;
  block_tokens_ = layout.block_tokens;
  return rows_;
}

absl::StatusOr<StepUpload::Ropes> StepUpload::RopeTable(absl::Span<const Rope> ropes,
                                                        const StepRows& step) {
  const auto table_is_known = [&] {
    return table_of_rows_ == rows_slab_.version() && table_of_ropes_ == ropes_slab_.version();
  };
  if (SameView(ropes, ropes_view_) && table_is_known()) return ropes_;
  ropes_view_ = {};
  // The ropes, then their frequencies, those of one table once.
  std::vector<std::byte>& content = ropes_content_;
  const size_t head = ropes.size() * sizeof(DeviceRope);
  content.resize(head);
  Ropes result = {.shared = ropes.size() == 1};
  for (size_t i = 0; i < ropes.size(); ++i) {
    const absl::Span<const float> frequencies = ropes[i].inverse_frequency;
    DeviceRope rope = {.pairs = static_cast<int32_t>(frequencies.size()), .scale = ropes[i].scale};
    size_t same = 0;
    while (same < i && (ropes[same].inverse_frequency.data() != frequencies.data() ||
                        ropes[same].inverse_frequency.size() != frequencies.size())) {
      ++same;
    }
    if (same < i) {
      DeviceRope first;
      std::memcpy(&first, &content[same * sizeof(DeviceRope)], sizeof(first));
      rope.first_frequency = first.first_frequency;
    } else {
      rope.first_frequency = static_cast<int32_t>((content.size() - head) / sizeof(float));
      const auto* const bytes = reinterpret_cast<const std::byte*>(frequencies.data());
      content.insert(content.end(), bytes, bytes + frequencies.size() * sizeof(float));
    }
    std::memcpy(&content[i * sizeof(DeviceRope)], &rope, sizeof(rope));
    result.max_pairs = std::max(result.max_pairs, rope.pairs);
  }
  const auto uploaded = ropes_slab_.Upload(content);
  if (!uploaded.ok()) return uploaded.status();
  result.ropes = reinterpret_cast<const DeviceRope*>(*uploaded);
  const bool known = table_is_known();
  if (!known) table_of_rows_ = 0;  // until the table is there
  const auto table = table_.AtLeast(size_t{2} * step.rows * result.max_pairs * sizeof(float));
  if (!table.ok()) return table.status();
  result.table = reinterpret_cast<const float*>(*table);
  ropes_ = result;
  if (known) {
    ropes_view_ = ropes;
    return ropes_;
  }
  const RopeTableParams params = {
      .step = step,
      .ropes = result.ropes,
      .frequencies = reinterpret_cast<const float*>(*uploaded + head),
      .table = reinterpret_cast<float*>(*table),
      .max_pairs = result.max_pairs,
      .shared = result.shared,
  };
  if (absl::Status status =
          runtime_->Launch(kernels_->rope_table, LaunchOf(params), params, *stream_);
      !status.ok()) {
    return status;
  }
  table_of_rows_ = rows_slab_.version();
  table_of_ropes_ = ropes_slab_.version();
  ropes_view_ = ropes;
  return ropes_;
}

}  // namespace baton
