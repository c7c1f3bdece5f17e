#include "common/metrics/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using testing::HasSubstr;

constexpr char kPage[] =
    "# HELP a_total Things.\n# TYPE a_total counter\n"
    "a_total{kind=\"x\\\"\\\\\\n\",code=\"OK\"} 3\na_total{kind=\"y\"} 1e+06\n"
    "# HELP b_seconds Time.\n# TYPE b_seconds histogram\n"
    "b_seconds_count 3\nb_seconds_sum 0.5\n"
    "b_seconds_bucket{le=\"0.1\"} 1\nb_seconds_bucket{le=\"1\"} 3\nb_seconds_bucket{le=\"+Inf\"} "
    "3\n"
    "# HELP c Level.\n# TYPE c gauge\nc NaN\n";

TEST(ExpositionTest, ReadsWhatPrometheusDescribes) {
  const auto page = ParseExposition(kPage);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->families.size(), 3u);
  EXPECT_EQ(page->Value("a_total", {{"kind", "x\"\\\n"}, {"code", "OK"}}), 3);
  EXPECT_EQ(page->Value("a_total", {{"kind", "z"}}), std::nullopt);
  EXPECT_EQ(page->Sum("a_total"), 1000003);
  EXPECT_EQ(page->Value("b_seconds_bucket", {{"le", "1"}}), 3);
  EXPECT_EQ(page->Value("b_seconds_sum"), 0.5);
  EXPECT_EQ(page->Find("b_seconds")->type, "histogram");
  EXPECT_EQ(page->Find("b"), nullptr);
  EXPECT_EQ(page->Find("c")->help, "Level.");
  EXPECT_TRUE(ParseExposition("").ok());
}

struct Broken {
  const char* text;
  const char* because;
};

class BrokenPageTest : public testing::TestWithParam<Broken> {};

TEST_P(BrokenPageTest, IsRefusedWithTheLine) {
  const auto page = ParseExposition(GetParam().text);
  EXPECT_EQ(page.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(page.status().message(), HasSubstr("line"));
  EXPECT_THAT(page.status().message(), HasSubstr(GetParam().because));
}

#define A "# HELP a_total Things.\n# TYPE a_total counter\n"
#define H "# HELP h Time.\n# TYPE h histogram\n"
INSTANTIATE_TEST_SUITE_P(
    , BrokenPageTest,
    testing::Values(
        Broken{A "a_total 1", "no end"}, Broken{A "a_total 1\r\n", "no value"},
        Broken{A "a_total 1 1700000000000\n", "no value"}, Broken{A "a_total 0x10\n", "no value"},
        Broken{A "\na_total 1\n", "line 3: a sample without a name"},
        Broken{A "a_total -1\n", "counted"}, Broken{A "a_total NaN\n", "counted"},
        Broken{A "a_total 1\na_total 2\n", "line 4: twice"},
        Broken{A "a_total{x=\"1\",x=\"2\"} 1\n", "label x twice"},
        Broken{A "a_total{x=\"1\"y=\"2\"} 1\n", "commas"},
        Broken{A "a_total{1x=\"1\"} 1\n", "NAME="},
        Broken{A "a_total{x=\"1} 1\n", "without its end"},
        Broken{A "a_total{x=\"\\t\"} 1\n", "escape"}, Broken{A "a_total{x=1} 1\n", "NAME="},
        Broken{A "b_total 1\n", "no part of"}, Broken{A "a_total{le=\"1\"} 1\n", "le and bucket"},
        Broken{A, "no sample"}, Broken{A "a_total 1\n" A "a_total 2\n", "two places"},
        Broken{"a_total 1\n", "without HELP"},
        Broken{"# HELP a_total x\na_total 1\n", "without HELP"},
        Broken{"# TYPE a_total counter\n", "follow its HELP"},
        Broken{"# HELP a_total\n", "HELP without"},
        Broken{"# HELP a x\n# TYPE a counter\n", "go together"},
        Broken{"# HELP a_total x\n# TYPE a_total gauge\n", "go together"},
        Broken{"# HELP a x\n# TYPE a summary\n", "no type"}, Broken{"# said so\n", "a comment"},
        Broken{H "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n", "ascend"},
        Broken{H "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n", "ascend"},
        Broken{H "h_bucket{le=\"x\"} 1\nh_sum 1\nh_count 1\n", "ascend"},
        Broken{H "h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n", "whole"},
        Broken{H "h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n", "whole"},
        Broken{H "h_bucket{le=\"+Inf\"} 1\nh_count 1\n", "whole"},
        Broken{H "h_bucket 1\n", "le and bucket"}, Broken{H "h 1\n", "no part of"}));

}  // namespace
}  // namespace baton
