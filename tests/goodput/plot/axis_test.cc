#include "tests/goodput/plot/axis.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using testing::ElementsAre;

std::vector<std::string> Labels(const Axis& axis, int max) {
  std::vector<std::string> labels;
  for (const Tick& tick : Ticks(axis, max)) labels.push_back(tick.label);
  return labels;
}

TEST(AxisTest, ValuesAreFormattedForPeople) {
  EXPECT_EQ(FormattedValue(0.0341, Unit::kSeconds), "34.1 ms");
  EXPECT_EQ(FormattedValue(0.9996, Unit::kSeconds), "1 s");
  EXPECT_EQ(FormattedValue(0.00099951, Unit::kSeconds), "1 ms");
  EXPECT_EQ(FormattedValue(12.34, Unit::kSeconds), "12.3 s");
  EXPECT_EQ(FormattedValue(0.0000123, Unit::kSeconds), "12.3 µs");
  EXPECT_EQ(FormattedValue(0.9051, Unit::kPercent), "90.5 %");
  EXPECT_EQ(FormattedValue(1, Unit::kPercent), "100 %");
  EXPECT_EQ(FormattedValue(1234567, Unit::kNumber), "1,234,567");
  EXPECT_EQ(FormattedValue(1234.5, Unit::kNumber), "1,234");
  EXPECT_EQ(FormattedValue(-1234, Unit::kNumber), "-1,234");
  EXPECT_EQ(FormattedValue(4.20, Unit::kNumber), "4.2");
  EXPECT_EQ(FormattedValue(0, Unit::kNumber), "0");
  EXPECT_EQ(FormattedValue(1536, Unit::kBytes), "1.5 KiB");
  EXPECT_EQ(FormattedValue(INFINITY, Unit::kSeconds), "–");
}

TEST(AxisTest, LinearTicksAreRound) {
  EXPECT_THAT(Labels({.unit = Unit::kPercent, .low = 0, .high = 1.06}, 6),
              ElementsAre("0 %", "20 %", "40 %", "60 %", "80 %", "100 %"));
  EXPECT_THAT(Labels({.unit = Unit::kSeconds, .low = 0, .high = 0.5}, 5),
              ElementsAre("0 s", "100 ms", "200 ms", "300 ms", "400 ms", "500 ms"));
  EXPECT_THAT(Labels({.low = 0, .high = 7}, 4), ElementsAre("0", "2", "4", "6"));
  EXPECT_THAT(Labels({.low = -1, .high = 1}, 4), ElementsAre("-1", "-0.5", "0", "0.5", "1"));
}

TEST(AxisTest, AHugeConstantHasAnAxisToo) {
  for (const double value : {-4e15, -1e17, -1e300, 1e300})
    EXPECT_LE(Ticks(AxisFor("x", Unit::kNumber, false, {value, value}), 6).size(), 7u) << value;
}

TEST(AxisTest, LogTicksAreDecadesOrPartsOfThem) {
  EXPECT_THAT(Labels({.unit = Unit::kSeconds, .log = true, .low = 0.0008, .high = 20}, 7),
              ElementsAre("1 ms", "10 ms", "100 ms", "1 s", "10 s"));
  EXPECT_THAT(Labels({.unit = Unit::kSeconds, .log = true, .low = 0.009, .high = 0.12}, 7),
              ElementsAre("10 ms", "20 ms", "50 ms", "100 ms"));
  EXPECT_THAT(Labels({.unit = Unit::kNumber, .log = true, .low = 1e-6, .high = 1e6}, 4).size(),
              testing::AllOf(testing::Ge(3u), testing::Le(5u)));
}

TEST(AxisTest, PositionsAreHeldInside) {
  const Axis axis{.log = true, .low = 1, .high = 100};
  EXPECT_DOUBLE_EQ(axis.Position(10), 0.5);
  EXPECT_EQ(axis.Position(0), 0);
  EXPECT_EQ(axis.Position(-5), 0);
  EXPECT_EQ(axis.Position(1e9), 1);
}

TEST(AxisTest, AnyDataGiveAnAxisThatHasRoom) {
  for (const bool log : {false, true}) {
    for (const std::vector<double>& values :
         {std::vector<double>{}, {NAN, INFINITY}, {0, 0, 0}, {5}, {1e-9, 1e9}}) {
      const Axis axis = AxisFor("x", Unit::kNumber, log, values);
      EXPECT_LT(axis.low, axis.high);
      EXPECT_GE(Ticks(axis, 6).size(), 2u);
      EXPECT_LE(Ticks(axis, 6).size(), 8u);
    }
  }
}

}  // namespace
}  // namespace baton
