#include "kernels/formats/weight_format.h"

#include "common/base/check.h"
#include "kernels/formats/element.h"
#include "kernels/formats/weight_group.h"

namespace baton {
namespace {

constexpr int kMaxGroups = 8;  // in a block

struct Format {
  absl::string_view name;
  int block_values;
  size_t block_bytes;
  void (*unpack)(const std::byte* block, WeightGroup* groups);
};

constexpr Format kFormats[kWeightFormats] = {
    {"f32", 1, 4, nullptr},         {"f16", 1, 2, nullptr},        {"bf16", 1, 2, nullptr},
    {"q4_0", 32, 18, UnpackQ4_0},   {"q4_1", 32, 20, UnpackQ4_1},  {"q5_0", 32, 22, UnpackQ5_0},
    {"q5_1", 32, 24, UnpackQ5_1},   {"q8_0", 32, 34, UnpackQ8_0},  {"q4_k", 256, 144, UnpackQ4_K},
    {"q5_k", 256, 176, UnpackQ5_K}, {"q6_k", 256, 210, UnpackQ6_K}};

const Format& Of(WeightFormat format) { return kFormats[static_cast<int>(format)]; }

}  // namespace

absl::string_view WeightFormatName(WeightFormat format) { return Of(format).name; }
int BlockValues(WeightFormat format) { return Of(format).block_values; }
size_t BlockBytes(WeightFormat format) { return Of(format).block_bytes; }

WeightFormat FormatOf(DType type) {
  return type == DType::kF32   ? WeightFormat::kF32
         : type == DType::kF16 ? WeightFormat::kF16
                               : WeightFormat::kBF16;
}

std::optional<DType> ElementTypeOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return DType::kF32;
    case WeightFormat::kF16:
      return DType::kF16;
    case WeightFormat::kBF16:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

float ReadHalf(const std::byte* from) { return ReadElement(DType::kF16, from); }

void UnpackGroups(WeightFormat format, const std::byte* row, absl::Span<WeightGroup> groups) {
  const Format& of = Of(format);
  const int groups_of_block = of.block_values / WeightGroup::kValues;
  BATON_CHECK(of.unpack != nullptr && groups.size() % groups_of_block == 0)
      << of.name << ": " << groups.size() << " groups";
  for (size_t g = 0; g < groups.size(); g += groups_of_block, row += of.block_bytes) {
    of.unpack(row, &groups[g]);
  }
}

void Dequantise(WeightFormat format, const std::byte* row, absl::Span<float> out) {
  if (const auto type = ElementTypeOf(format)) {
    ConvertElements(*type, row, DType::kF32, out.data(), out.size());
    return;
  }
  const Format& of = Of(format);
  BATON_CHECK(out.size() % of.block_values == 0) << of.name << ": " << out.size() << " values";
  WeightGroup groups[kMaxGroups];
  for (size_t begin = 0; begin < out.size(); begin += of.block_values, row += of.block_bytes) {
    of.unpack(row, groups);
    for (int i = 0; i < of.block_values; ++i) {
      const WeightGroup& group = groups[i / WeightGroup::kValues];
      const int at = i % WeightGroup::kValues;
      float value = group.scale * static_cast<float>(group.factor[at / WeightGroup::kHalf]) *
                    static_cast<float>(group.quant[at]);
      if (group.has_offset) value += group.offset_scale * static_cast<float>(group.offset_factor);
      out[begin + i] = value;
    }
  }
}

}  // namespace baton
