#include "router/grpc/client_messages.h"

#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "common/base/error_details.h"

namespace baton {
namespace {

using google::protobuf::util::MessageDifferencer;

v1::Token TokenAt(int id, uint32_t position) {
  v1::Token token;
  token.set_token_id(id);
  token.set_position(position);
  return token;
}

TEST(RequestFromProtoTest, EveryFieldArrives) {
  v1::GenerateRequest message;
  message.set_request_id("r");
  message.set_model("m");
  message.set_text("t");
  message.mutable_sampling()->set_seed(7);
  message.set_mode(v1::SERVING_MODE_COLOCATED);
  message.mutable_slo()->set_ttft_ms(1);
  message.mutable_slo()->set_tpot_ms(2);
  message.set_parse_special(true);
  message.set_add_special(false);
  message.set_cache_salt("s");
  message.set_prefix_cache(false);
  const ClientRequest request = RequestFromProto(std::move(message));
  EXPECT_EQ(request.request_id, "r");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(std::get<std::string>(request.prompt), "t");
  EXPECT_EQ(request.sampling.seed(), 7u);
  EXPECT_EQ(request.mode, ServingMode::kColocated);
  EXPECT_EQ(request.ttft_ms, 1);
  EXPECT_EQ(request.tpot_ms, 2);
  EXPECT_TRUE(request.parse_special);
  EXPECT_EQ(request.add_special, false);
  EXPECT_TRUE(request.skip_special);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_FALSE(request.prefix_cache);
}

TEST(RequestFromProtoTest, WhatIsNotSetHasItsDefault) {
  const ClientRequest request = RequestFromProto(v1::GenerateRequest());
  EXPECT_TRUE(std::holds_alternative<std::monostate>(request.prompt));
  EXPECT_EQ(request.add_special, std::nullopt);
  EXPECT_EQ(request.ttft_ms, std::nullopt);
  EXPECT_TRUE(request.prefix_cache);
  v1::GenerateRequest ids;
  ids.mutable_token_ids()->add_ids(3);
  EXPECT_EQ(std::get<std::vector<TokenId>>(RequestFromProto(std::move(ids)).prompt),
            std::vector<TokenId>{3});
}

TEST(CheckModeTest, AnUnknownModeIsNamed) {
  EXPECT_TRUE(CheckMode(v1::SERVING_MODE_AUTO).ok());
  const absl::Status status = CheckMode(static_cast<v1::ServingMode>(7));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParameterOf(status), "mode");
}

TEST(ToProtoTest, EveryFieldOfAnEventArrives) {
  v1::GenerateEvent expected;
  v1::Delta& delta = *expected.mutable_delta();
  delta.set_index(1);
  delta.set_text("ab");
  *delta.add_tokens() = TokenAt(5, 9);
  EXPECT_TRUE(MessageDifferencer::Equals(
      ToProto(AnswerDelta{.index = 1, .text = "ab", .tokens = {TokenAt(5, 9)}, .text_ends = {2}}),
      expected));

  expected.Clear();
  expected.mutable_accepted()->set_request_id("r");
  expected.mutable_accepted()->set_model("m");
  expected.mutable_accepted()->set_prompt_tokens(4);
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(AnswerAccepted{"r", "m", 4}), expected));

  expected.Clear();
  *expected.mutable_prompt_logprobs()->add_tokens() = TokenAt(5, 0);
  EXPECT_TRUE(MessageDifferencer::Equals(ToProto(PromptLogprobs{{TokenAt(5, 0)}}), expected));

  expected.Clear();
  v1::Finished& finished = *expected.mutable_finished();
  finished.set_index(2);
  finished.set_reason(v1::FINISH_REASON_STOP);
  finished.set_matched_stop("x");
  finished.set_stop_token_id(3);
  finished.set_limit("l");
  EXPECT_TRUE(MessageDifferencer::Equals(
      ToProto(AnswerFinished{2, v1::FINISH_REASON_STOP, "x", 3, "l"}), expected));
}

TEST(ToProtoTest, EveryFieldOfASummaryArrives) {
  v1::GenerateEvent expected;
  v1::Summary& summary = *expected.mutable_summary();
  summary.set_index(2);
  summary.mutable_usage()->set_prompt_tokens(10);
  summary.mutable_usage()->set_cached_tokens(11);
  summary.mutable_usage()->set_completion_tokens(12);
  *summary.mutable_total() = summary.usage();
  summary.set_seed(13);
  v1::Timing& timing = *summary.mutable_timing();
  timing.set_queue_us(1);
  timing.set_prefill_us(2);
  timing.set_handover_hidden_us(3);
  timing.set_handover_exposed_us(4);
  timing.set_decode_wait_us(5);
  timing.set_decode_us(6);
  timing.set_ttft_us(7);
  timing.set_total_us(8);
  summary.set_prefill_worker("p");
  summary.set_decode_worker("d");
  summary.set_link("shm");
  summary.set_migrations(14);
  summary.set_mode(v1::SERVING_MODE_COLOCATED);
  summary.set_decode_cached_tokens(15);
  summary.mutable_slo()->set_met(false);
  summary.mutable_slo()->set_ttft_met(true);
  summary.mutable_slo()->set_tpot_met(false);
  summary.mutable_slo()->set_lost_to(v1::SLO_PHASE_OTHER);
  const TokenUsage usage = {10, 11, 12};
  const v1::GenerateEvent event =
      ToProto(AnswerSummary{.index = 2,
                            .usage = usage,
                            .total = usage,
                            .seed = 13,
                            .timing = {1, 2, 3, 4, 5, 6, 7, 8},
                            .prefill_worker = "p",
                            .decode_worker = "d",
                            .link = "shm",
                            .decode_cached_tokens = 15,
                            .migrations = 14,
                            .mode = ServingMode::kColocated,
                            .slo = SloVerdict{true, false, SloPhase::kOther}});
  EXPECT_TRUE(MessageDifferencer::Equals(event, expected)) << event.DebugString();
}

TEST(AddressOfPeerTest, IsTheAddressWithoutThePort) {
  EXPECT_EQ(AddressOfPeer("ipv4:127.0.0.1:5000"), "ipv4:127.0.0.1");
  EXPECT_EQ(AddressOfPeer("ipv6:%5B::1%5D:5000"), "ipv6:%5B::1%5D");
  EXPECT_EQ(AddressOfPeer("unix:/tmp/a:b"), "unix:/tmp/a:b");
}

}  // namespace
}  // namespace baton
