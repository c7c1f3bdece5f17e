#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/engine/one_process.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"

// Compares greedy answers with those of transformers and its logits processors. The expected
// answers come from testdata/make_processors.py.
namespace baton {
namespace {

using nlohmann::json;

const json& Goldens() {
  static const auto& goldens = *new json(json::parse(
      std::ifstream(absl::StrCat(BATON_SOURCE_DIR, "/common/engine/testdata/processors.json"))));
  return goldens;
}

// A model of common/model/testdata with everything needed to answer prompts, in float.
class Answering {
 public:
  explicit Answering(const std::string& name)
      : backend_(CreateCpuBackend({.threads = 1}).value()),
        model_(Model::Load(absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/", name),
                           backend_.get())
                   .value()),
        layout_(model_->LayoutFor(kBlockTokens, DType::kF32)),
        memory_(kBlocks * layout_.BlockBytes()),
        engine_(
            Engine::Create(model_.get(), backend_.get(), {memory_.data(), layout_}, 64).value()) {}
  OneProcessAnswer Answer(const std::vector<TokenId>& prompt, const SamplingOptions& sampling) {
    return GenerateInOneProcess(engine_.get(), &pool_, model_->config(), kBlockTokens, prompt,
                                sampling)
        .value();
  }

 private:
  static constexpr int kBlockTokens = 8, kBlocks = 8;
  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<const Model> model_;
  const KvLayout layout_;
  std::vector<std::byte> memory_;
  BlockPool pool_{kBlocks};
  const std::unique_ptr<Engine> engine_;
};

// Converts arguments of transformers' generate() to SamplingOptions.
SamplingOptions OptionsOf(const json& options) {
  SamplingOptions sampling;
  sampling.max_tokens = 24;
  sampling.repetition_penalty = options.value("repetition_penalty", 1.0f);
  sampling.bad_words = options.value("bad_words_ids", std::vector<std::vector<TokenId>>());
  sampling.stop_tokens = options.value("eos_token_id", std::vector<TokenId>());
  sampling.min_tokens = options.value("min_new_tokens", 0);
  for (const json& bias : options.value("sequence_bias", json::array())) {
    sampling.logit_bias.emplace_back(bias[0][0].get<TokenId>(), bias[1].get<float>());
  }
  return sampling;
}

TEST(ProcessorsTest, GreedyAnswersAreThoseOfTransformers) {
  int tokens = 0, ended = 0;
  for (const json& golden : Goldens()["cases"]) {
    SCOPED_TRACE(testing::Message() << golden["model"] << " " << golden["options"]);
    const SamplingOptions sampling = OptionsOf(golden["options"]);
    // Checks the test data: every choice is clearer than the rounding errors of floats, and the
    // options changed the answer.
    for (const double margin : golden["margins"])
      EXPECT_GT(margin, 1e-5 * golden["largest"].get<double>());
    EXPECT_TRUE(golden["changed"].get<bool>());
    const auto prompt = golden["prompt"].get<std::vector<TokenId>>();
    const OneProcessAnswer answer = Answering(golden["model"]).Answer(prompt, sampling);
    std::vector<TokenId> ids;
    for (const SampledToken& token : answer.tokens) ids.push_back(token.id);
    EXPECT_EQ(ids, golden["answer"].get<std::vector<TokenId>>());
    tokens += static_cast<int>(ids.size());
    ended += answer.reason == FinishReason::kStop;
  }
  EXPECT_GT(tokens, 1000);
  EXPECT_GT(ended, 10);
}

TEST(ProcessorsTest, RepetitionPenaltyIsThatOfTransformersForNegativeLogitsToo) {
  int negative = 0, changed = 0;
  for (const json& golden : Goldens()["rows"]) {
    auto logits = golden["logits"].get<std::vector<float>>();
    const auto tokens = golden["tokens"].get<std::vector<TokenId>>();
    SamplingOptions sampling;
    sampling.repetition_penalty = golden["penalty"];
    const TokenHistory history(tokens, static_cast<int>(tokens.size()));
    const auto sampled = Sampler().Sample(absl::MakeSpan(logits), sampling, 20, 0, &history);
    EXPECT_EQ(sampled->id, golden["best"]) << golden;
    negative += logits[golden["best"]] < 0;
    changed += golden["best"] != tokens.back();  // tokens.back() is best without penalty
  }
  EXPECT_GT(negative, 20);
  EXPECT_GT(changed, 15);
}

// A bad word is a list of tokens. If a bad word is as long as all tokens so far plus the next one,
// transformers does not ban it, but Baton does.
TEST(ProcessorsTest, AWordOfTheWholeContextIsBannedHereAndNotInTransformers) {
  for (const json& golden : Goldens()["whole_context"]) {
    SCOPED_TRACE(golden["model"]);
    const auto prompt = golden["prompt"].get<std::vector<TokenId>>();
    const auto word = golden["word"].get<std::vector<TokenId>>();
    ASSERT_EQ(word.size(), prompt.size() + 1);
    SamplingOptions sampling;
    sampling.max_tokens = 1;
    Answering answering(golden["model"]);
    EXPECT_EQ(golden["transformers"], word.back());
    EXPECT_EQ(answering.Answer(prompt, sampling).tokens[0].id, word.back());
    sampling.bad_words = {word};
    EXPECT_EQ(answering.Answer(prompt, sampling).tokens[0].id, golden["with_a_word_less_long"]);
  }
}

}  // namespace
}  // namespace baton
