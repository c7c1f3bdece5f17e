#include "common/model/source/gguf_file.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/scratch_folder.h"
#include "common/model/source/gguf_bytes.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GgufFileTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<const GgufFile>> Open(const std::string& bytes) {
    folder_.Write("m.gguf", bytes);
    return GgufFile::Open(folder_.File("m.gguf"));
  }
  void ExpectRefused(const std::string& bytes, const std::string& why) {
    const auto file = Open(bytes);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(why));
  }

  ScratchFolder folder_;
};

TEST_F(GgufFileTest, SettingsOfEveryType) {
  using G = GgufBytes;
  for (const uint32_t version : {2u, 3u}) {
    GgufBytes bytes(version);
    bytes.Set("u8", G::kU8, G::Raw(uint8_t{200}))
        .Set("i8", G::kI8, G::Raw(int8_t{-3}))
        .Set("u16", G::kU16, G::Raw(uint16_t{60000}))
        .Set("i16", G::kI16, G::Raw(int16_t{-300}))
        .SetU32("u32", 4000000000)
        .Set("i32", G::kI32, G::Raw(int32_t{-5}))
        .Set("u64", G::kU64, G::Raw(uint64_t{1} << 62))
        .Set("i64", G::kI64, G::Raw(int64_t{-7}))
        .SetF32("f32", 0.5)
        .Set("f64", G::kF64, G::Raw(0.1))
        .Set("yes", G::kBool, G::Raw(uint8_t{1}))
        .SetText("text", "a\0b")
        .SetList("texts", G::kText, {G::Text("x"), G::Text(""), G::Text("longer")})
        .SetList("floats", G::kF32, {G::Raw(1.5f), G::Raw(-2.0f)})
        .SetList("bools", G::kBool, {G::Raw(uint8_t{0}), G::Raw(uint8_t{1})})
        .SetList("ints", G::kI32, {G::Raw(int32_t{-1}), G::Raw(int32_t{2})})
        .SetList("none", G::kU8, {});
    const auto opened = Open(bytes.Build());
    ASSERT_TRUE(opened.ok()) << opened.status();
    const GgufFile& file = **opened;
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, int64_t>>{{"u8", 200},
                                                      {"i8", -3},
                                                      {"u16", 60000},
                                                      {"i16", -300},
                                                      {"u32", 4000000000},
                                                      {"i32", -5},
                                                      {"u64", int64_t{1} << 62},
                                                      {"i64", -7}}) {
      ASSERT_NE(file.Find<int64_t>(key), nullptr) << key;
      EXPECT_EQ(*file.Find<int64_t>(key), value);
    }
    EXPECT_EQ(*file.Find<double>("f32"), 0.5);
    EXPECT_EQ(*file.Find<double>("f64"), 0.1);
    EXPECT_TRUE(*file.Find<bool>("yes"));
    EXPECT_EQ(*file.Find<std::string>("text"), "a");
    EXPECT_THAT(*file.Find<std::vector<std::string>>("texts"), ElementsAre("x", "", "longer"));
    EXPECT_THAT(*file.Find<std::vector<double>>("floats"), ElementsAre(1.5, -2.0));
    EXPECT_THAT(*file.Find<std::vector<bool>>("bools"), ElementsAre(false, true));
    EXPECT_THAT(*file.Find<std::vector<int64_t>>("ints"), ElementsAre(-1, 2));
    EXPECT_TRUE(file.Find<std::vector<int64_t>>("none")->empty());
    EXPECT_EQ(file.Find<std::string>("u8"), nullptr);
    EXPECT_EQ(file.Find<std::string>("absent"), nullptr);
    EXPECT_TRUE(GgufFile::IsGguf(folder_.File("m.gguf")));
  }
}

TEST_F(GgufFileTest, TensorsLieWhereTheFileSays) {
  const std::string f32(4 * 6, 'a'), q8(34 * 2, 'b'), odd(66, 'c');
  const auto opened = Open(GgufBytes()
                               .AddTensor("small", {3, 2}, 0, f32)
                               .AddTensor("blocks", {32, 2}, 8, q8)
                               .AddTensor("other", {256}, 16, odd)
                               .Build());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto& tensors = (*opened)->tensors();
  ASSERT_EQ(tensors.size(), 3u);
  const WeightTensor& small = tensors.at("small");
  EXPECT_EQ(small.type, "F32");
  EXPECT_EQ(small.format, WeightFormat::kF32);
  EXPECT_THAT(small.shape, ElementsAre(2, 3));
  const auto bytes = small.Bytes();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), f32);
  const WeightTensor& blocks = tensors.at("blocks");
  EXPECT_EQ(blocks.format, WeightFormat::kQ8_0);
  EXPECT_EQ(blocks.element_type(), std::nullopt);
  EXPECT_EQ(blocks.bytes, q8.size());
  EXPECT_EQ(static_cast<char>(blocks.Bytes()[67]), 'b');
  EXPECT_EQ(tensors.at("other").type, "IQ2_XXS");
  EXPECT_EQ(tensors.at("other").format, std::nullopt);
}

TEST_F(GgufFileTest, DamagedFilesAreRefused) {
  using G = GgufBytes;
  const std::string f32(4 * 6, 'a');
  const auto tensor = [&](const std::vector<uint64_t>& sizes, uint32_t type, int64_t offset = -1) {
    return GgufBytes().AddTensor("t", sizes, type, f32, offset).Build();
  };
  ExpectRefused("", "the header ends behind the file's 0 bytes: it was cut short");
  ExpectRefused("GGML and more bytes than a header has", "is no GGUF file");
  ExpectRefused("version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer");
  ExpectRefused(GgufBytes(1).Build(), "is of version 1 of GGUF; expected version 2 or 3");
  ExpectRefused(GgufBytes(3 << 24).Build(), "or big-endian");
  ExpectRefused("GGUF" + G::Raw(3u) + G::Raw(uint64_t{1} << 40) + G::Raw(uint64_t{0}),
                "has 1099511627776 tensors and 0 settings; it takes up to 65536 and 65536");
  ExpectRefused(GgufBytes().SetU32("a", 1).SetU32("a", 1).Build(), "setting \"a\" occurs twice");
  ExpectRefused(GgufBytes().Set("a", 13, "x").Build(), "setting \"a\" has type 13");
  ExpectRefused(GgufBytes().Set("a", G::kBool, "\x02").Build(), "a bool of 2");
  ExpectRefused(GgufBytes().Set("a", G::kU64, G::Raw(~uint64_t{0})).Build(),
                "setting \"a\" is 18446744073709551615; it takes less than 2^63");
  ExpectRefused(GgufBytes().SetList("a", G::kList, {}).Build(), "a list of lists");
  ExpectRefused(GgufBytes().SetList("a", 77, {"x"}).Build(), "has type 77");
  ExpectRefused(GgufBytes().Set("a", G::kText, G::Raw(~uint64_t{0})).Build(),
                "setting \"a\" has 18446744073709551615 bytes");
  ExpectRefused(
      GgufBytes().Set("a", G::kList, G::Raw(uint32_t{G::kU8}) + G::Raw(~uint64_t{0})).Build(),
      "setting \"a\" ends behind the file's");
  ExpectRefused(GgufBytes().SetU32(std::string(70000, 'k'), 1).Build(),
                "the name of a setting has 70000 bytes; it takes 65535");
  ExpectRefused(tensor({}, 0), "tensor \"t\" has 0 dimensions; it takes 1 to 4");
  ExpectRefused(tensor({1, 1, 1, 1, 1}, 0), "has 5 dimensions");
  ExpectRefused(tensor({3, 0}, 0), "has shape [0, 3] so far");
  ExpectRefused(tensor({uint64_t{1} << 40, 1 << 20}, 0), "their product at most 2^48");
  ExpectRefused(tensor({uint64_t{1} << 63, 2}, 0), "their product at most 2^48");
  ExpectRefused(tensor({6}, 99), "tensor \"t\" has type 99, which is none that is known");
  ExpectRefused(tensor({6}, 12), "rows of 6 values; expected a multiple of 256 for Q4_K");
  ExpectRefused(tensor({7}, 0), "tensor \"t\" has 28 bytes at byte 0 of the data");
  ExpectRefused(tensor({6}, 0, 8), "begins at byte 8 of the data; expected a multiple of 32");
  ExpectRefused(tensor({6}, 0, 1 << 20), "at byte 1048576 of the data");
  ExpectRefused(GgufBytes().AddTensor("a", {1}, 0, "wxyz").AddTensor("a", {1}, 0, "wxyz").Build(),
                "tensor \"a\" occurs twice");
  ExpectRefused(GgufBytes().AddTensor("a", {6}, 0, f32).AddTensor("b", {6}, 0, f32, 0).Build(),
                "inside of the tensor before it");
  ExpectRefused(GgufBytes().SetU32("general.alignment", 24).Build(), "expected a power of two");
  ExpectRefused(GgufBytes().SetText("general.alignment", "32").Build(), "expected a power of two");
  EXPECT_EQ(GgufFile::Open(folder_.File("absent")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(GgufFile::IsGguf(folder_.File("absent")));
}

TEST_F(GgufFileTest, EveryShorterFileIsRefused) {
  const std::string whole = GgufBytes()
                                .SetText("general.architecture", "llama")
                                .SetList("l", GgufBytes::kText, {GgufBytes::Text("x")})
                                .AddTensor("t", {4, 2}, 1, std::string(16, 'a'))
                                .Build();
  ASSERT_TRUE(Open(whole).ok());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    ASSERT_EQ(Open(whole.substr(0, bytes)).status().code(), absl::StatusCode::kInvalidArgument)
        << bytes;
  }
}

}  // namespace
}  // namespace baton
