#include "kernels/formats/weight_format.h"

#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "kernels/formats/weight_group.h"

namespace baton {
namespace {

const std::map<std::string, WeightFormat>& Quantised() {
  static const auto* formats = [] {
    auto* names = new std::map<std::string, WeightFormat>;
    for (int i = 0; i < kWeightFormats; ++i) {
      const auto format = static_cast<WeightFormat>(i);
      if (IsQuantised(format)) names->emplace(WeightFormatName(format), format);
    }
    return names;
  }();
  return *formats;
}

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(WeightFormatTest, ValuesAreThoseOfThePackageGgufBitForBit) {
  std::ifstream file(BATON_SOURCE_DIR "/kernels/formats/testdata/format_goldens.txt");
  std::map<std::string, int> lines;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, block_hex, value_hex;
    words >> name >> block_hex >> value_hex;
    SCOPED_TRACE(name);
    ASSERT_TRUE(Quantised().count(name));
    const WeightFormat format = Quantised().at(name);
    // The blocks begin at an odd address.
    const std::string blocks = "x" + absl::HexStringToBytes(block_hex);
    const std::string expected = absl::HexStringToBytes(value_hex);
    std::vector<float> values(expected.size() / sizeof(float));
    ASSERT_EQ(RowBytes(format, static_cast<int64_t>(values.size())), blocks.size() - 1);
    Dequantise(format, Bytes(blocks).data() + 1, absl::MakeSpan(values));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::memcmp(&values[i], expected.data() + i * sizeof(float), sizeof(float)), 0)
          << "value " << i << " is " << values[i];
    }
    ++lines[name];
  }
  EXPECT_EQ(lines.size(), Quantised().size());
}

TEST(WeightFormatTest, ElementsAreFormatsToo) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const WeightFormat format = FormatOf(type);
    EXPECT_EQ(ElementTypeOf(format), type);
    EXPECT_EQ(WeightFormatName(format), DTypeName(type));
    EXPECT_EQ(RowBytes(format, 5), 5 * DTypeBytes(type));
    EXPECT_FALSE(IsQuantised(format));
  }
  EXPECT_EQ(ElementTypeOf(WeightFormat::kQ8_0), std::nullopt);
  const uint16_t halves[] = {0x3c00, 0xc000};
  float values[2];
  Dequantise(WeightFormat::kF16, reinterpret_cast<const std::byte*>(halves), values);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], -2);
}

TEST(WeightFormatTest, GroupsHaveTheValues) {
  for (const auto& [name, format] : Quantised()) {
    SCOPED_TRACE(name);
    std::string blocks(2 * BlockBytes(format), '\0');
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<char>(37 * i % 61);
    std::vector<float> values(2 * BlockValues(format));
    Dequantise(format, Bytes(blocks).data(), absl::MakeSpan(values));
    std::vector<WeightGroup> groups(values.size() / WeightGroup::kValues);
    UnpackGroups(format, Bytes(blocks).data(), absl::MakeSpan(groups));
    for (size_t i = 0; i < values.size(); ++i) {
      const WeightGroup& group = groups[i / WeightGroup::kValues];
      const size_t at = i % WeightGroup::kValues;
      double value = double{group.scale} * group.factor[at / WeightGroup::kHalf] * group.quant[at];
      if (group.has_offset) value += double{group.offset_scale} * group.offset_factor;
      EXPECT_EQ(values[i], static_cast<float>(value));
    }
  }
}

}  // namespace
}  // namespace baton
