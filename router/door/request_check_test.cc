#include "router/door/request_check.h"

#include <algorithm>
#include <string>

#include "common/base/error_details.h"
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
    request_.prompt = std::vector<TokenId>{5};
  }
  absl::StatusOr<CheckedRequest> Check() {
    return CheckRequest(request_, model_, {}, absl::UnixEpoch(), absl::InfiniteFuture());
  }
  v1::SamplingParams& sampling() { return request_.sampling; }
  std::vector<TokenId> Ids(const std::string& text) {
    return tokenizer_->Encode(text, {.add_special = false}).value();
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  ServedModel model_;
  ClientRequest request_;
};

TEST_F(RequestCheckTest, ABadWordStandsForItsTokensInEveryPlace) {
  sampling().add_bad_word_ids()->add_ids(9);
  sampling().add_bad_words("fox");
  sampling().add_bad_words(" den of thieves");
  sampling().add_bad_words("fox");  // The same word again.
  const auto checked = Check();
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_THAT(checked->sampling.bad_words,
              testing::UnorderedElementsAre(ElementsAre(9), Ids("fox"), Ids(" fox"),
                                            Ids(" den of thieves")));
  EXPECT_NE(Ids("fox"), Ids(" fox"));
}

TEST_F(RequestCheckTest, ASpecialTokenAsABadWordIsTheTokenAndItsText) {
  const TokenId end = tokenizer_->TokenToId("<|end_of_turn|>").value();
  sampling().add_bad_words("<|end_of_turn|>");
  const auto checked = Check();
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_THAT(checked->sampling.bad_words, testing::Contains(ElementsAre(end)));
  EXPECT_THAT(checked->sampling.bad_words, testing::Contains(Ids("<|end_of_turn|>")));
}

TEST_F(RequestCheckTest, ASpecialTokenAsAStopStringIsAStopTokenToo) {
  const TokenId turn = tokenizer_->TokenToId("<|assistant|>").value();
  sampling().add_stop("<|assistant|>");
  sampling().add_stop("fox");
  sampling().set_ignore_eos(true);
  const auto checked = Check();
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_THAT(checked->sampling.stop_tokens, ElementsAre(turn));
  EXPECT_THAT(checked->stop, ElementsAre("<|assistant|>", "fox"));
}

// Every form of tokeniser but flags_text, which nobody publishes: it has no token for white space
// at the start of a text. `text` is a text in which the word comes last; the ban must cover the
// tokens with which the text ends.
TEST(BadWordsTest, CoverTheWordBehindEveryKindOfText) {
  for (const char* name :
       {"deepseek", "deepseek_coder", "falcon", "flags", "gemma", "gpt2", "llama2", "llama3",
        "metaspace", "mistral3", "o200k", "phi3", "qwen2", "smollm", "tekken"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = *Tokenizer::FromFile(
        absl::StrCat(BATON_SOURCE_DIR "/common/tokenizer/testdata/", name, ".tokenizer.json"));
    ServedModel model = {name, ReadModelConfig(kDemoModel).value(), tokenizer.get()};
    model.config.vocab = tokenizer->vocab_size();
    model.config.generation = {};
    for (const std::string word : {"the", "work", "\n", " ", "!", "("}) {
      ClientRequest request;
      request.prompt = std::vector<TokenId>{5};
      request.sampling.add_bad_words(word);
      const auto checked =
          CheckRequest(request, model, {}, absl::UnixEpoch(), absl::InfiniteFuture());
      ASSERT_TRUE(checked.ok()) << checked.status();
      for (const std::string before : {"", "a ", "a\n", "a(", "a\U0001F600", "1"}) {
        if (word == " " && before != "1") continue;  // joins the space, or the text before it
        const auto ids = tokenizer->Encode(before + word, {.add_special = false});
        ASSERT_TRUE(ids.ok()) << ids.status();
        const auto& banned = checked->sampling.bad_words;
        EXPECT_TRUE(std::any_of(banned.begin(), banned.end(),
                                [&](const auto& sequence) {
                                  return sequence.size() <= ids->size() &&
                                         std::equal(sequence.rbegin(), sequence.rend(),
                                                    ids->rbegin());
                                }))
            << '"' << before << "\" + \"" << word << '"';
      }
    }
  }
}

TEST_F(RequestCheckTest, TextsThatNeedATokenBeyondTheVocabularyAreRefused) {
  const TokenId fox = Ids("fox").back();
  model_.config.vocab = fox;
  model_.config.generation.end_tokens.clear();
  request_.prompt = "the fox";
  const auto checked = Check();
  EXPECT_EQ(checked.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(checked.status().message()), HasSubstr("with id "));
  EXPECT_THAT(std::string(checked.status().message()),
              HasSubstr(absl::StrCat("the model's vocabulary has ids 0 to ", fox - 1)));
}

TEST_F(RequestCheckTest, LengthsThatAreNotSetAreThoseOfGenerationConfig) {
  GenerationDefaults& generation = model_.config.generation;
  request_.prompt = std::vector<TokenId>{5, 6};
  EXPECT_EQ(Check()->default_max_tokens, std::nullopt);

  generation.max_length = 9;
  EXPECT_EQ(Check()->default_max_tokens, 7);
  EXPECT_EQ(Check()->default_name, "max_length 9 of generation_config.json");
  EXPECT_EQ(Check()->sampling.max_tokens, 0);
  generation.max_new_tokens = 40;  // holds instead of max_length
  EXPECT_EQ(Check()->default_max_tokens, 40);
  EXPECT_EQ(Check()->default_name, "max_new_tokens 40 of generation_config.json");

  generation.min_length = 5;
  EXPECT_EQ(Check()->sampling.min_tokens, 3);
  generation.min_new_tokens = 50;  // holds instead of min_length, but not beyond the max
  EXPECT_EQ(Check()->sampling.min_tokens, 40);

  sampling().set_max_tokens(12);
  EXPECT_EQ(Check()->default_max_tokens, std::nullopt);
  EXPECT_EQ(Check()->sampling.max_tokens, 12);
  EXPECT_EQ(Check()->sampling.min_tokens, 12);
  sampling().set_min_tokens(1);
  EXPECT_EQ(Check()->sampling.min_tokens, 1);

  sampling().clear_max_tokens();
  sampling().set_min_tokens(41);
  EXPECT_THAT(std::string(Check().status().message()),
              HasSubstr("min_tokens is 41; the model's limit is max_new_tokens 40 of "
                        "generation_config.json: give max_tokens"));
  sampling().clear_min_tokens();

  // transformers raises an error, too.
  generation = {};
  generation.max_length = 2;
  sampling().clear_max_tokens();
  EXPECT_THAT(
      std::string(Check().status().message()),
      HasSubstr("prompt of 2 tokens; generation_config.json of the model has max_length 2"));
}

TEST_F(RequestCheckTest, StopStringsThatAreNotSetAreThoseOfGenerationConfig) {
  model_.config.generation.stop_strings = {"END"};
  EXPECT_THAT(Check()->stop, ElementsAre("END"));
  sampling().add_stop("fox");
  EXPECT_THAT(Check()->stop, ElementsAre("fox"));
}

TEST_F(RequestCheckTest, SpecialTokensInATextAreTextUnlessTheRequestSaysOtherwise) {
  const std::string text = "<|user|>What is rain?<|end_of_turn|><|assistant|>";
  request_.prompt = text;
  const auto typed = Check();
  ASSERT_TRUE(typed.ok()) << typed.status();
  EXPECT_EQ(typed->prompt, tokenizer_->Encode(text).value());
  request_.parse_special = true;
  const auto parsed = Check();
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->prompt, tokenizer_->Encode(text, {.parse_special = true}).value());
  EXPECT_LT(parsed->prompt.size(), typed->prompt.size());
  request_.add_special = false;
  const auto bare = Check();
  ASSERT_TRUE(bare.ok()) << bare.status();
  // The demo model's tokeniser adds one token at the front.
  EXPECT_THAT(bare->prompt, ElementsAreArray(absl::MakeConstSpan(parsed->prompt).subspan(1)));
  EXPECT_TRUE(tokenizer_->IsSpecial(bare->prompt.front()));
}

TEST_F(RequestCheckTest, ARefusalNamesTheParameterAndSaysIfTheContextIsTooShort) {
  const auto expect = [this](const std::string& parameter, const std::string& reason) {
    const absl::Status status = Check().status();
    EXPECT_FALSE(status.ok()) << parameter;
    EXPECT_EQ(ParameterOf(status), parameter) << status;
    EXPECT_EQ(ReasonOf(status), reason) << status;
  };
  const int context = model_.config.context;
  sampling().set_max_tokens(static_cast<uint32_t>(context));
  expect("max_tokens", kContextLengthExceeded);
  sampling().set_max_tokens(0);
  expect("max_tokens", "");
  sampling().Clear();
  request_.prompt = std::vector<TokenId>(static_cast<size_t>(context), 5);
  expect("prompt", kContextLengthExceeded);
  std::string text;
  for (int i = 0; i < context; ++i) text += "a b c d e ";
  request_.prompt = text;
  expect("prompt", kContextLengthExceeded);
  for (ClientRequest request : {ClientRequest(), ClientRequest{.prompt = std::string()},
                                ClientRequest{.prompt = std::vector<TokenId>{-1}}}) {
    request_ = std::move(request);
    expect("prompt", "");
  }
  request_ = {.model = "other", .prompt = std::string("a")};
  expect("model", kModelNotFound);
  request_ = {.prompt = std::string("a"), .ttft_ms = -1};
  expect("slo.ttft_ms", "");
  request_ = {.prompt = std::string("a"), .cache_salt = std::string(300, 's')};
  expect("cache_salt", "");
  request_.cache_salt.clear();
  sampling().set_temperature(-1);
  expect("temperature", "");
  sampling().Clear();
  sampling().set_n(65);
  expect("n", "");
  sampling().Clear();
  sampling().add_stop("");
  expect("stop", "");
  sampling().Clear();
  sampling().add_stop_token_ids(1 << 30);
  expect("stop_token_ids", "");
}

TEST_F(RequestCheckTest, WhatIsForTextsIsRefusedWithTokenIds) {
  request_.parse_special = true;
  EXPECT_THAT(std::string(Check().status().message()), HasSubstr("parse_special is set"));
  request_.parse_special = false;
  request_.add_special = true;
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
  model_.config.generation.min_new_tokens = 6;
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

TEST_F(RequestCheckTest, WhatIsNotSetChangesNoLogit) {
  const auto checked = Check();
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_FALSE(checked->sampling.LooksBack());
  EXPECT_TRUE(checked->sampling.logit_bias.empty());
  EXPECT_TRUE(checked->sampling.bad_words.empty());
}

}  // namespace
}  // namespace baton
