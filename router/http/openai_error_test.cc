#include "router/http/openai_error.h"

#include <cstdio>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/error_details.h"
#include "common/rpc/retry_after.h"

namespace baton {
namespace {

using nlohmann::json;

std::map<std::string, std::string> Fields(const OpenAiError& error) {
  return {error.fields.begin(), error.fields.end()};
}

TEST(OpenAiErrorTest, ABadParameterIs400WithItsName) {
  const OpenAiError error = ToOpenAiError(BadParameter("n", "n is \"2\"; it takes integers"));
  EXPECT_EQ(error.http, 400);
  EXPECT_EQ(error.body, R"({"error":{"message":"n is \"2\"; it takes integers",)"
                        R"("type":"invalid_request_error","param":"n","code":null}})");
  EXPECT_EQ(Fields(error),
            (std::map<std::string, std::string>{{"Content-Type", "application/json"}}));
}

TEST(OpenAiErrorTest, AReasonTakesThePlaceOfTheCode) {
  const OpenAiError error =
      ToOpenAiError(WithReason(absl::NotFoundError("model 'x' is not served"), kModelNotFound));
  EXPECT_EQ(error.http, 404);
  EXPECT_EQ(json::parse(error.body)["error"],
            json::parse(R"({"message": "model 'x' is not served", "type": "invalid_request_error",
                            "param": null, "code": "model_not_found"})"));
}

TEST(OpenAiErrorTest, TimesToComeAgainAreRoundedUp) {
  const auto fields = [](absl::Duration delay) {
    return Fields(ToOpenAiError(WithRetryAfter(absl::ResourceExhaustedError("full"), delay)));
  };
  EXPECT_EQ(fields(absl::Milliseconds(2001))["Retry-After"], "3");
  EXPECT_EQ(fields(absl::Milliseconds(2001))["retry-after-ms"], "2001");
  EXPECT_EQ(fields(absl::Microseconds(1500))["retry-after-ms"], "2");
  EXPECT_EQ(fields(absl::ZeroDuration())["Retry-After"], "1");
  EXPECT_EQ(fields(absl::ZeroDuration())["retry-after-ms"], "1");
  // Without a time: Unavailable has one second, ResourceExhausted has none.
  EXPECT_EQ(Fields(ToOpenAiError(absl::UnavailableError("drains")))["Retry-After"], "1");
  EXPECT_EQ(Fields(ToOpenAiError(absl::ResourceExhaustedError("slow"))).count("Retry-After"), 0u);
}

TEST(OpenAiErrorTest, ClientsDoNotRetryAfterADeadline) {
  for (const absl::Status& status :
       {absl::DeadlineExceededError("late"), absl::UnimplementedError("chat")}) {
    EXPECT_EQ(Fields(ToOpenAiError(status))["x-should-retry"], "false") << status;
  }
  EXPECT_EQ(Fields(ToOpenAiError(absl::UnavailableError("down"))).count("x-should-retry"), 0u);
}

// Prints the table, as docs/openai.md shows it.
TEST(OpenAiErrorTest, EachStatusHasOneRow) {
  std::map<absl::StatusCode, int> rows;
  for (const OpenAiErrorKind& kind : OpenAiErrorKinds()) {
    ++rows[kind.status];
    const OpenAiError error = ToOpenAiError(absl::Status(kind.status, "why"));
    EXPECT_EQ(error.http, kind.http);
    const json body = json::parse(error.body)["error"];
    EXPECT_EQ(body["type"], std::string(kind.type));
    EXPECT_EQ(body["code"], kind.code.empty() ? json() : json(std::string(kind.code)));
    std::printf("| %s | %d | %s | %s |\n", absl::StatusCodeToString(kind.status).c_str(), kind.http,
                std::string(kind.type).c_str(), std::string(kind.code).c_str());
  }
  for (int code = 1; code <= 16; ++code) {
    EXPECT_EQ(rows[static_cast<absl::StatusCode>(code)], 1) << code;
  }
  EXPECT_EQ(ToOpenAiError(absl::Status(static_cast<absl::StatusCode>(99), "odd")).http, 500);
}

TEST(OpenAiErrorTest, ErrorsOfHttpAloneHaveTheSameShape) {
  const OpenAiError error = MakeOpenAiError(413, "the body has 9 bytes", "body_too_large");
  EXPECT_EQ(error.http, 413);
  EXPECT_EQ(error.body, R"({"error":{"message":"the body has 9 bytes",)"
                        R"("type":"invalid_request_error","param":null,"code":"body_too_large"}})");
}

}  // namespace
}  // namespace baton
