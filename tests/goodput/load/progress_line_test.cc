#include "tests/goodput/load/progress_line.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ProgressLineTest, TellsRateAttainmentSoFarAndTheTimeLeft) {
  RunProgress progress = {.elapsed_s = 12.4,
                          .total_s = 90,
                          .sent = 250,
                          .in_flight = 3,
                          .ended = 247,
                          .recent_rate = 20.06,
                          .measured = 210,
                          .good = 204};
  EXPECT_EQ(ProgressLine::Text(progress),
            "12 of 90 s, 20.1 requests/s, 3 open, attainment 97.1 % of 210, 78 s left");
  progress.measured = progress.good = 0;
  EXPECT_EQ(ProgressLine::Text(progress),
            "12 of 90 s, 20.1 requests/s, 3 open, warming up, 78 s left");
  progress.elapsed_s = 91.7;
  progress.measured = 1000;
  EXPECT_EQ(ProgressLine::Text(progress),
            "92 of 90 s, 20.1 requests/s, 3 open, attainment 0.0 % of 1000, waiting for the last "
            "measured answers");
}

}  // namespace
}  // namespace baton
