#include "router/request_check.h"

#include <string>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kDemoModel[] = BATON_SOURCE_DIR "/common/model/demo";

// Tests of requests that pass. RouterServerTest covers requests that are refused, over gRPC.
class RequestCheckTest : public ::testing::Test {
 protected:
  RequestCheckTest() {
    model_.name = "demo";
    model_.config = ReadModelConfig(kDemoModel).value();
    tokenizer_ = Tokenizer::FromFile(absl::StrCat(kDemoModel, "/tokenizer.json")).value();
    model_.tokenizer = tokenizer_.get();
    request_.mutable_token_ids()->add_ids(5);
  }
  absl::StatusOr<CheckedRequest> Check() {
    return CheckRequest(request_, model_, {}, absl::UnixEpoch(), absl::InfiniteFuture());
  }
  v1::SamplingParams& sampling() { return *request_.mutable_sampling(); }
  std::vector<TokenId> Ids(const std::string& text) {
    return tokenizer_->Encode(text, {.add_special = false}).value();
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  ServedModel model_;
  v1::GenerateRequest request_;
};

TEST_F(RequestCheckTest, ABadWordStandsForItsTokensAtTheStartAndAfterABlank) {
  sampling().add_bad_word_ids()->add_ids(9);
  sampling().add_bad_words("fox");
  sampling().add_bad_words(" den of thieves");
  sampling().add_bad_words("fox");            // The same word again.
  sampling().add_bad_words("<|endoftext|>");  // Taken as text, not as the control token.
  const auto checked = Check();
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_THAT(checked->sampling.bad_words,
              ElementsAre(ElementsAre(9), Ids("fox"), Ids(" fox"), Ids(" den of thieves"),
                          Ids("<|endoftext|>"), Ids(" <|endoftext|>")));
  EXPECT_NE(Ids("fox"), Ids(" fox"));
  EXPECT_GT(checked->sampling.bad_words.back().size(), 2u);
}

TEST_F(RequestCheckTest, SpecialTokensInATextAreTextUnlessTheRequestSaysOtherwise) {
  const std::string text = "<|user|>What is rain?<|end_of_turn|><|assistant|>";
  request_.set_text(text);
  const auto typed = Check();
  ASSERT_TRUE(typed.ok()) << typed.status();
  EXPECT_EQ(typed->prompt, tokenizer_->Encode(text).value());
  request_.set_parse_special(true);
  const auto parsed = Check();
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->prompt, tokenizer_->Encode(text, {.parse_special = true}).value());
  EXPECT_LT(parsed->prompt.size(), typed->prompt.size());
  request_.set_add_special(false);
  const auto bare = Check();
  ASSERT_TRUE(bare.ok()) << bare.status();
  // The demo model's tokeniser adds one token at the front.
  EXPECT_THAT(bare->prompt, ElementsAreArray(absl::MakeConstSpan(parsed->prompt).subspan(1)));
  EXPECT_TRUE(tokenizer_->IsSpecial(bare->prompt.front()));
}

TEST_F(RequestCheckTest, WhatIsForTextsIsRefusedWithTokenIds) {
  request_.set_parse_special(true);
  EXPECT_THAT(std::string(Check().status().message()), HasSubstr("parse_special is set"));
  request_.set_parse_special(false);
  request_.set_add_special(true);
  EXPECT_THAT(std::string(Check().status().message()), HasSubstr("add_special is set"));
}

TEST_F(RequestCheckTest, EveryFieldReachesTheOptionsAndSurvivesTheWayToAWorker) {
  sampling().set_repetition_penalty(1.25f);
  sampling().set_presence_penalty(-0.5f);
  sampling().set_frequency_penalty(2);
  (*sampling().mutable_logit_bias())[7] = -100;
  (*sampling().mutable_logit_bias())[3] = 1.5f;
  sampling().add_bad_words("fox");
  sampling().set_max_tokens(5);
  const auto checked = Check();
  ASSERT_TRUE(checked.ok()) << checked.status();
  const auto there = SamplingFromProto(SamplingToProto(checked->sampling), {});
  ASSERT_TRUE(there.ok()) << there.status();
  for (const SamplingOptions& options : {checked->sampling, *there}) {
    EXPECT_EQ(options.repetition_penalty, 1.25f);
    EXPECT_EQ(options.presence_penalty, -0.5f);
    EXPECT_EQ(options.frequency_penalty, 2);
    EXPECT_THAT(options.logit_bias, ElementsAre(Pair(3, 1.5f), Pair(7, -100)));
    EXPECT_EQ(options.bad_words, checked->sampling.bad_words);
    EXPECT_TRUE(options.LooksBack());
  }
}

TEST_F(RequestCheckTest, WhatIsNotSetIsTheModels) {
  model_.config.generation.repetition_penalty = 1.05f;
  model_.config.generation.min_tokens = 6;
  model_.config.generation.bad_words = {{7, 8}};
  // This limit is below the model's default of min_tokens. The client did not set min_tokens, so
  // this is no error of the client.
  sampling().set_max_tokens(4);
  sampling().add_bad_word_ids()->add_ids(9);
  const auto checked = Check();
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->sampling.repetition_penalty, 1.05f);
  EXPECT_EQ(checked->sampling.min_tokens, 4);
  EXPECT_THAT(checked->sampling.bad_words, ElementsAre(ElementsAre(7, 8), ElementsAre(9)));
  sampling().set_repetition_penalty(1);
  sampling().set_min_tokens(0);
  EXPECT_EQ(Check()->sampling.repetition_penalty, 1);
  EXPECT_EQ(Check()->sampling.min_tokens, 0);
}

constexpr int kContext = 1000;

absl::Status CheckBytes(const std::string& message, int block = -1) {
  google::protobuf::io::ArrayInputStream in(message.data(), static_cast<int>(message.size()),
                                            block);
  return CheckBytesBesideText(&in, message.size(), kContext);
}

TEST(CheckBytesBesideTextTest, ATextOfAnyLengthPasses) {
  v1::GenerateRequest request;
  request.set_text(std::string(5 << 20, 'a'));
  request.set_model("demo");
  request.mutable_sampling()->add_stop(std::string(MaxBytesBesideText(kContext) - 100, 'a'));
  const std::string message = request.SerializeAsString();
  for (const int block : {-1, 16 << 10, 1000}) {
    EXPECT_TRUE(CheckBytes(message, block).ok()) << CheckBytes(message, block);
  }
  request.mutable_sampling()->add_stop(std::string(100, 'a'));
  const absl::Status status = CheckBytes(request.SerializeAsString());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("bytes beside its text; for a model with a context of 1000 tokens it takes "
                        "up to 1054576"));
}

// The longest prompt has `kContext` ids. A program may send each of them as a field of its own.
TEST(CheckBytesBesideTextTest, AsManyIdsAsTheContextPassAndManyMoreDoNot) {
  const auto ids = [](int count, const std::string& id) {
    std::string list;
    for (int i = 0; i < count; ++i) list += id;
    std::string message = "\x22";  // token_ids
    google::protobuf::io::StringOutputStream out(&message);
    google::protobuf::io::CodedOutputStream coded(&out);
    coded.WriteVarint32(static_cast<uint32_t>(list.size()));
    coded.WriteString(list);
    coded.Trim();
    return message;
  };
  const std::string id = "\x08\xff\xff\xff\x7f";
  v1::GenerateRequest request;
  ASSERT_TRUE(request.ParseFromString(ids(kContext, id)));
  EXPECT_EQ(request.token_ids().ids_size(), kContext);
  EXPECT_TRUE(CheckBytes(ids(kContext, id)).ok());
  const std::string many = ids(300 * kContext, id);
  EXPECT_EQ(CheckBytes(many).code(), absl::StatusCode::kInvalidArgument);
  // Everything behind the first fault of a message counts as other fields than the text, so this
  // message is refused too.
  EXPECT_EQ(CheckBytes(many.substr(0, many.size() - 1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckBytes(std::string(many.size(), '\0')).code(), absl::StatusCode::kInvalidArgument);
}

// The parser then says what is wrong.
TEST(CheckBytesBesideTextTest, AMessageThatIsNotValidPassesIfItIsShort) {
  v1::GenerateRequest request;
  request.set_text(std::string(5 << 20, 'a'));
  const std::string message = request.SerializeAsString();
  EXPECT_TRUE(CheckBytes(message.substr(0, message.size() - 1)).ok());
  EXPECT_TRUE(CheckBytes(message + "\xff\xff\xff").ok());
  EXPECT_TRUE(CheckBytes("\x1a\x7f").ok());
  // The length of this text is that of none: it is negative.
  EXPECT_FALSE(CheckBytes("\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + message).ok());
}

TEST_F(RequestCheckTest, WhatIsNotSetChangesNoLogit) {
  const auto checked = Check();
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_FALSE(checked->sampling.LooksBack());
  EXPECT_TRUE(checked->sampling.logit_bias.empty());
  EXPECT_TRUE(checked->sampling.bad_words.empty());
}

}  // namespace
}  // namespace baton
