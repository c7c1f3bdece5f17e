#include "tests/goodput/search/compared_modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST(ComparedModesTest, ModesAndNamedEndpoints) {
  const auto modes = ParseComparedSides("disaggregated,auto").value();
  ASSERT_THAT(modes, SizeIs(2));
  EXPECT_EQ(modes[1].name, "auto");
  EXPECT_EQ(modes[1].mode, "auto");
  EXPECT_EQ(modes[1].endpoint, "");
  const auto sides = ParseComparedSides("colocated=h:1,mine=[::1]:2").value();
  EXPECT_EQ(sides[0].mode, "colocated");
  EXPECT_EQ(sides[0].endpoint, "h:1");
  EXPECT_EQ(sides[1].name, "mine");
  EXPECT_EQ(sides[1].mode, "");
  EXPECT_EQ(sides[1].endpoint, "[::1]:2");
}

TEST(ComparedModesTest, WhatCanNotBeComparedIsNamed) {
  const auto why = [](const char* text) {
    return std::string(ParseComparedSides(text).status().message());
  };
  EXPECT_THAT(why("auto"), HasSubstr("--compare has 1 of the 2 to 8 sides"));
  EXPECT_THAT(why("auto,auto"), HasSubstr("'auto' occurs twice"));
  EXPECT_THAT(why("auto,colocatd"), HasSubstr("'colocatd' is not a mode"));
  EXPECT_THAT(why("auto,,colocated"), HasSubstr("'' is neither MODE nor NAME=HOST:PORT"));
  EXPECT_THAT(why("auto,a="), HasSubstr("'a=' is neither"));
  EXPECT_THAT(why("a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9"), HasSubstr("9 of the 2 to 8"));
}

}  // namespace
}  // namespace baton
