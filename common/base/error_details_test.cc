#include "common/base/error_details.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ErrorDetailsTest, AStatusCarriesTheParameterAndTheReason) {
  const absl::Status status =
      WithReason(BadParameter("max_tokens", "too many"), kContextLengthExceeded);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "too many");
  EXPECT_EQ(ParameterOf(status), "max_tokens");
  EXPECT_EQ(ReasonOf(status), "context_length_exceeded");
  EXPECT_EQ(ParameterOf(absl::InternalError("x")), "");
  EXPECT_EQ(ReasonOf(absl::InternalError("x")), "");
}

TEST(ErrorDetailsTest, LongNamesAreCutAndForeignPayloadsAreNoNames) {
  EXPECT_EQ(ParameterOf(BadParameter(std::string(1000, 'p'), "")), std::string(100, 'p'));
  for (const std::string& payload : {std::string(), std::string("\x0a"), std::string("\x0a\x7f"),
                                     std::string("\x0a\xff\xff"), std::string("\x12\x01x")}) {
    absl::Status status = absl::InternalError("x");
    status.SetPayload("type.googleapis.com/google.rpc.BadRequest", absl::Cord(payload));
    EXPECT_EQ(ParameterOf(status), "");
  }
}

}  // namespace
}  // namespace baton
