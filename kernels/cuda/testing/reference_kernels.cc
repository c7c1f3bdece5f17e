#include "kernels/cuda/testing/reference_kernels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "kernels/formats/element.h"

namespace baton {
namespace {

double Get(const void* bf16, int64_t index) {
  return ReadElement(DType::kBF16, static_cast<const uint16_t*>(bf16) + index);
}
void Set(void* bf16, int64_t index, double value) {
  WriteElement(DType::kBF16, static_cast<float>(value), static_cast<uint16_t*>(bf16) + index);
}

// Returns the sequence of a row and sets `*position`, or returns null for a padding row.
const DeviceSequence* SequenceOf(const StepRows& step, int row, int* position) {
  if (step.sequence_of_row[row] < 0) return nullptr;
  const DeviceSequence* sequence = &step.sequences[step.sequence_of_row[row]];
  *position = sequence->first_position + (row - sequence->first_row);
  return sequence;
}

// Returns the address in the pool of one element of K or V, at a position of the sequence that has
// these blocks.
char* SlotElement(const LayerPages& pages, int64_t plane_offset, const int32_t* blocks,
                  int position, int head, int element) {
  const size_t size = DTypeBytes(pages.type);
  return static_cast<char*>(pages.data) +
         blocks[position / pages.block_tokens] * pages.block_bytes + plane_offset +
         head * pages.head_bytes +
         (position % pages.block_tokens * pages.head_dim + element) * size;
}

}  // namespace

void RunReference(const EmbeddingParams& p) {
  for (int row = 0; row < p.rows; ++row) {
    const bool follows = p.follows != nullptr && p.follows[row] >= 0;
    const int64_t token = follows ? p.sampled[p.follows[row]] : p.tokens[row];
    for (int c = 0; c < p.hidden; ++c) {
      Set(p.out, row * p.out_stride + c, Get(p.table, token * p.hidden + c));
    }
  }
}

void RunReference(const GatherRowsParams& p) {
  for (int i = 0; i < p.count; ++i) {
    for (int c = 0; c < p.cols; ++c) {
      Set(p.out, int64_t{i} * p.cols + c, Get(p.in, p.rows[i] * p.in_stride + c));
    }
  }
}

void RunReference(const RmsNormParams& p) {
  for (int row = 0; row < p.rows; ++row) {
    for (int begin = 0; begin < p.groups * p.n; begin += p.n) {
      double squares = 0;
      for (int c = begin; c < begin + p.n; ++c) {
        squares += Get(p.in, row * p.in_stride + c) * Get(p.in, row * p.in_stride + c);
      }
      const double inverse = 1 / std::sqrt(squares / p.n + p.epsilon);
      for (int c = begin; c < begin + p.n; ++c) {
        Set(p.out, row * p.out_stride + c,
            Get(p.in, row * p.in_stride + c) * inverse * Get(p.weight, c - begin));
      }
    }
  }
}

void RunReference(const BiasRowsParams& p) {
  for (int row = 0; row < p.rows; ++row) {
    for (int c = 0; c < p.cols; ++c) {
      const int64_t at = row * p.out_stride + c;
      Set(p.out, at, Get(p.bias, c) + (p.accumulate ? Get(p.out, at) : 0));
    }
  }
}

void RunReference(const SiluMulParams& p) {
  for (int row = 0; row < p.rows; ++row) {
    for (int c = 0; c < p.cols; ++c) {
      const double gate = Get(p.gate, row * p.gate_stride + c);
      Set(p.out, row * p.out_stride + c,
          gate / (1 + std::exp(-gate)) * Get(p.up, row * p.up_stride + c));
    }
  }
}

void RunReference(const RopeTableParams& p) {
  for (int row = 0; row < p.step.rows; ++row) {
    int position;
    if (SequenceOf(p.step, row, &position) == nullptr) continue;
    const DeviceRope& rope = p.ropes[p.shared ? 0 : p.step.sequence_of_row[row]];
    float* cosine = p.table + int64_t{row} * 2 * p.max_pairs;
    float* sine = cosine + p.max_pairs;
    for (int pair = 0; pair < rope.pairs; ++pair) {
      const double angle =
          static_cast<float>(position) * p.frequencies[rope.first_frequency + pair];
      cosine[pair] = static_cast<float>(std::cos(angle) * rope.scale);
      sine[pair] = static_cast<float>(std::sin(angle) * rope.scale);
    }
  }
}

void RunReference(const RopeWriteKvParams& p) {
  const int head_dim = p.pages.head_dim;
  for (int row = 0; row < p.step.rows; ++row) {
    int position;
    const DeviceSequence* sequence = SequenceOf(p.step, row, &position);
    if (sequence == nullptr) continue;
    const int pairs = p.ropes[p.shared ? 0 : p.step.sequence_of_row[row]].pairs;
    const float* cosine = p.table + int64_t{row} * 2 * p.max_pairs;
    const float* sine = cosine + p.max_pairs;
    const auto turned = [&](const void* head, int64_t at, int i) {
      if (i >= 2 * pairs) return Get(head, at + i);
      const int pair = i % pairs;
      return i < pairs ? Get(head, at + i) * cosine[pair] - Get(head, at + i + pairs) * sine[pair]
                       : Get(head, at + i) * cosine[pair] + Get(head, at + i - pairs) * sine[pair];
    };
    const int32_t* blocks = p.step.blocks + sequence->first_block;
    for (int head = 0; head < p.pages.kv_heads; ++head) {
      for (int i = 0; i < head_dim; ++i) {
        const auto write = [&](int64_t plane_offset, double value) {
          WriteElement(p.pages.type, static_cast<float>(value),
                       SlotElement(p.pages, plane_offset, blocks, position, head, i));
        };
        write(p.pages.key_offset, turned(p.k, row * p.k_stride + head * head_dim, i));
        write(p.pages.value_offset, Get(p.v, row * p.v_stride + head * head_dim + i));
      }
    }
    for (int head = 0; head < p.heads; ++head) {
      const int64_t at = row * p.q_stride + head * head_dim;
      std::vector<double> result(head_dim);
      for (int i = 0; i < head_dim; ++i) result[i] = turned(p.q, at, i);
      for (int i = 0; i < head_dim; ++i) Set(p.q, at + i, result[i]);
    }
  }
}

namespace {

// Reads rows of K or V of one sequence and KV head. Each is converted once, when it is first used,
// and rows that are never used are never read.
class KvRows {
 public:
  KvRows(const PagedAttentionParams& p, int64_t plane_offset, const int32_t* blocks, int head)
      : p_(p), plane_offset_(plane_offset), blocks_(blocks), head_(head) {}
  const std::vector<double>& operator[](int key) {
    if (rows_.size() <= static_cast<size_t>(key)) rows_.resize(key + 1);
    std::vector<double>& row = rows_[key];
    for (int i = static_cast<int>(row.size()); i < p_.pages.head_dim; ++i) {
      row.push_back(
          ReadElement(p_.pages.type, SlotElement(p_.pages, plane_offset_, blocks_, key, head_, i)));
    }
    return row;
  }

 private:
  const PagedAttentionParams& p_;
  const int64_t plane_offset_;
  const int32_t* const blocks_;
  const int head_;
  std::vector<std::vector<double>> rows_;
};

// Computes attention of the rows whose sequence has `min` to `max` rows in the step.
void AttendRows(const PagedAttentionParams& p, int min, int max) {
  const int head_dim = p.pages.head_dim, group = p.heads / p.pages.kv_heads;
  std::map<std::pair<const DeviceSequence*, int>, std::pair<KvRows, KvRows>> planes;
  std::vector<double> q(head_dim);
  for (int row = 0; row < p.step.rows; ++row) {
    int position;
    const DeviceSequence* sequence = SequenceOf(p.step, row, &position);
    if (sequence == nullptr || sequence->rows < min || sequence->rows > max) continue;
    const int32_t* blocks = p.step.blocks + sequence->first_block;
    const int first = p.window > 0 ? std::max(0, position + 1 - p.window) : 0;
    for (int head = 0; head < p.heads; ++head) {
      auto& [keys, values] = planes
                                 .try_emplace({sequence, head / group},
                                              KvRows(p, p.pages.key_offset, blocks, head / group),
                                              KvRows(p, p.pages.value_offset, blocks, head / group))
                                 .first->second;
      for (int i = 0; i < head_dim; ++i) q[i] = Get(p.q, row * p.q_stride + head * head_dim + i);
      std::vector<double> weights;
      for (int key = first; key <= position; ++key) {
        double dot = 0;
        const std::vector<double>& k = keys[key];
        for (int i = 0; i < head_dim; ++i) dot += q[i] * k[i];
        dot *= p.scale;
        weights.push_back(p.soft_cap > 0 ? p.soft_cap * std::tanh(dot / p.soft_cap) : dot);
      }
      const double max = *std::max_element(weights.begin(), weights.end());
      double sum = 0;
      for (double& weight : weights) sum += weight = std::exp(weight - max);
      for (int i = 0; i < head_dim; ++i) {
        double value = 0;
        for (int key = first; key <= position; ++key) {
          value += weights[key - first] / sum * values[key][i];
        }
        Set(p.out, row * p.out_stride + head * head_dim + i, value);
      }
    }
  }
}

}  // namespace

void RunReference(const PagedAttentionParams& p) { AttendRows(p, 0, INT32_MAX); }
void RunReference(const SplitAttentionParams& p) {
  AttendRows(p.attention, 0, p.plan.prefill_rows - 1);
}
void RunReference(const PrefillAttentionParams& p) {
  AttendRows(p.attention, p.prefill_rows, INT32_MAX);
}

void RunReference(const AttentionPlanParams& p) {
  int items = 0, end = p.first_row + p.rows;
  for (int row = p.first_row, rows_left = 0; row < end; ++row) {
    p.first_item[row - p.first_row] = items;
    int position;
    const DeviceSequence* sequence = SequenceOf(p.step, row, &position);
    const auto same = [&](int other) {
      return p.step.sequence_of_row[other] == p.step.sequence_of_row[row];
    };
    if (row == p.first_row || !same(row - 1)) rows_left = 0;
    if (sequence != nullptr && sequence->rows < p.prefill_rows && rows_left == 0) {
      while (rows_left < p.tile_rows && row + rows_left < end && same(row + rows_left)) ++rows_left;
      const int first = p.window > 0 ? std::max(0, position + 1 - p.window) : 0;
      for (int range = first / kAttentionRange;
           range <= (position + rows_left - 1) / kAttentionRange; ++range) {
        p.items[items++] = {row, range};
      }
    }
    if (rows_left > 0) --rows_left;
  }
  p.first_item[p.rows] = items;
}

void RunReference(const ArgmaxParams& p) {
  for (int row = 0; row < p.rows; ++row) {
    const float* logits = p.logits + int64_t{row} * p.vocab;
    int best = 0;
    bool sound = true;
    for (int token = 0; token < p.vocab; ++token) {
      sound &= logits[token] < INFINITY;  // NaN compares false
      if (logits[token] > logits[best]) best = token;
    }
    p.tokens[row] = sound && logits[best] > -INFINITY ? best : -1;
  }
}

}  // namespace baton
