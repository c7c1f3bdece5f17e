#include "common/base/byte_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using testing::HasSubstr;

TEST(ByteSizeTest, UnitsOfTwoAndOfTenInAnyCase) {
  for (const auto& [text, bytes] :
       std::vector<std::pair<std::string, uint64_t>>{{"0", 0},
                                                     {"268435456", 268435456},
                                                     {"12B", 12},
                                                     {"4Gi", uint64_t{4} << 30},
                                                     {"4GiB", uint64_t{4} << 30},
                                                     {"4gi", uint64_t{4} << 30},
                                                     {"4gib", uint64_t{4} << 30},
                                                     {"4GIB", uint64_t{4} << 30},
                                                     {"4G", 4'000'000'000},
                                                     {"4GB", 4'000'000'000},
                                                     {"4gB", 4'000'000'000},
                                                     {"900Ki", 900 << 10},
                                                     {"900k", 900'000},
                                                     {"7Mi", 7 << 20},
                                                     {"7m", 7'000'000},
                                                     {"3Ti", uint64_t{3} << 40},
                                                     {"3T", 3'000'000'000'000},
                                                     {"2Pi", uint64_t{2} << 50},
                                                     {"2P", 2'000'000'000'000'000},
                                                     {"1.5Gi", 3 << 29},
                                                     {"0.5GB", 500'000'000},
                                                     {"18446744073709551615", UINT64_MAX}}) {
    const absl::StatusOr<uint64_t> parsed = ParseByteSize(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ByteSizeTest, WhatIsNoSizeIsNamedWithTheFormsThereAre) {
  for (const std::string text : {"",           "some",
                                 "Gi",         "-5",
                                 "+5",         " 4Gi",
                                 "4 Gi",       "4Gi ",
                                 "4X",         "4Gig",
                                 "4GiBs",      "4Ei",
                                 "4ii",        "1.5",
                                 "1.Gi",       ".5Gi",
                                 "1.2.3Gi",    "0x10",
                                 "1e9",        "18446744073709551616",
                                 "17000000Ti", "1.0000000000000000000000001Gi"}) {
    const absl::Status status = ParseByteSize(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("'", text, "' is not a size")));
    EXPECT_THAT(std::string(status.message()), HasSubstr("4GiB"));
  }
}

TEST(ByteSizeTest, TextIsExactAndShort) {
  EXPECT_EQ(ByteSizeText(0), "0");
  EXPECT_EQ(ByteSizeText(1000), "1K");
  EXPECT_EQ(ByteSizeText(268435456), "256Mi");
  EXPECT_EQ(ByteSizeText(uint64_t{4} << 30), "4Gi");
  EXPECT_EQ(ByteSizeText(1'500'000'000), "1500M");
  EXPECT_EQ(ByteSizeText(1'234'567'891), "1234567891");
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{999}, uint64_t{1} << 62, UINT64_MAX}) {
    EXPECT_EQ(*ParseByteSize(ByteSizeText(bytes)), bytes);
  }
  EXPECT_EQ(RoundedBytes(16'060'522'496), "16.1 GB");
  EXPECT_EQ(RoundedBytes(523'400'000), "523 MB");
  EXPECT_EQ(RoundedBytes(12'345), "12 kB");
}

}  // namespace
}  // namespace baton
