#include <string>
#include <vector>

#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/e2e/e2e_test.h"
#include "tests/e2e/served_folder.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Serves a small model whose generation_config.json has `settings`, and asks it for an answer
// without max_tokens. The prefill worker gives the first token, the decode worker the others.
class GenerationSettingsTest : public testing::Test {
 protected:
  void Serve(const nlohmann::json& settings, const std::vector<std::string>& router_flags) {
    folder_.Write("generation_config.json", settings.dump());
    auto cluster = Cluster::Start({.model = folder_.path(), .router_flags = router_flags});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }
  Answer Ask() {
    v1::GenerateRequest request;
    for (const int id : {1, 5, 9}) request.mutable_token_ids()->add_ids(id);
    request.mutable_sampling()->set_ignore_eos(true);
    Answer answer = Generate(cluster_->stub(), request);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    return answer;
  }

  const ServedFolder folder_{"gqa_f32"};
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(GenerationSettingsTest, MaxNewTokensIsTheDefaultAndTheLogSaysSo) {
  Serve({{"max_new_tokens", 5}, {"num_beams", 4}, {"unsloth_version", "2025.1"}}, {});
  EXPECT_EQ(Ask().tokens.size(), 5u);
  const CapturedLog& log = cluster_->router().log();
  const auto limit = log.WaitFor("default_max_tokens", kSoon);
  ASSERT_TRUE(limit.ok()) << limit.status();
  EXPECT_THAT(*limit, HasSubstr("generation_config.json"));
  const auto warned = log.WaitFor("model_setting_ignored", kSoon);
  ASSERT_TRUE(warned.ok()) << warned.status();
  EXPECT_THAT(*warned, AllOf(HasSubstr("num_beams"), HasSubstr("unsloth_version")));
}

TEST_F(GenerationSettingsTest, IgnoreTakesNoneOfThem) {
  Serve({{"max_new_tokens", 5}, {"no_repeat_ngram_size", 2}}, {"--generation-config=ignore"});
  EXPECT_GT(Ask().tokens.size(), 5u);
}

// Until November 2026, the head was dropped without a word.
TEST_F(GenerationSettingsTest, AHeadOfItsOwnInATiedModelIsUsedAndNamed) {
  Serve({{"max_new_tokens", 5}}, {});
  const std::vector<int32_t> apart = Ask().ids();
  cluster_.reset();
  auto config = nlohmann::json::parse(folder_.Read("config.json"));
  config["tie_word_embeddings"] = true;
  folder_.Write("config.json", config.dump());
  Serve({{"max_new_tokens", 5}}, {});
  EXPECT_EQ(Ask().ids(), apart);
  for (const Process* worker : {&cluster_->prefill(0), &cluster_->decode(0)}) {
    const auto warned = worker->log().WaitFor("odd_tensors", kSoon);
    ASSERT_TRUE(warned.ok()) << warned.status();
    EXPECT_THAT(*warned, HasSubstr("with different values: the model uses both"));
  }
}

}  // namespace
}  // namespace baton
