#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/formats/dtype.h"

namespace baton {

// The way in which the values of a weight are stored: one by one, or in blocks of small integers
// that share scales. The blocks are those of GGUF files (github.com/ggml-org/ggml, docs/gguf.md and
// ggml-common.h). This is another thing than DType, which is the type of activations and of KV.
enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};
constexpr int kWeightFormats = 11;

// Returns the name in logs and fingerprints: "f32", "q4_0", "q4_k".
absl::string_view WeightFormatName(WeightFormat format);

// Returns the format whose values are single elements of `type`, and the reverse: nullopt for
// formats with blocks.
WeightFormat FormatOf(DType type);
std::optional<DType> ElementTypeOf(WeightFormat format);

// Returns the number of consecutive values of a row that are stored together, 1, 32 or 256, and
// their bytes.
int BlockValues(WeightFormat format);
size_t BlockBytes(WeightFormat format);
inline bool IsQuantised(WeightFormat format) { return BlockValues(format) > 1; }

// Returns the bytes of `values` values in a row. `values` must be a multiple of BlockValues().
inline size_t RowBytes(WeightFormat format, int64_t values) {
  return static_cast<size_t>(values / BlockValues(format)) * BlockBytes(format);
}

// Writes the values of a row's beginning: out.size() of them, a multiple of BlockValues(). These
// are the exact values that the format defines, as the package `gguf` computes them bit for bit: a
// product of scale and integer is exact, and formats with an offset round once when they add it.
// `row` may have any alignment.
void Dequantise(WeightFormat format, const std::byte* row, absl::Span<float> out);

}  // namespace baton
