#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/scrape.h"

namespace baton {
namespace {

// 25 blocks of 16 tokens.
std::vector<int32_t> Prompt(int32_t first) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 400; ++i) ids.push_back((first + i * 7) % 200);
  return ids;
}

class PrefixCacheE2eTest : public testing::Test {
 protected:
  void Start(int workers) {
    const std::vector<std::string> flags = {"--metrics-listen=127.0.0.1:0",
                                            "--attach-token=secret-of-the-cluster"};
    auto cluster = Cluster::Start({.prefill = workers,
                                   .decode = workers,
                                   .router_flags = flags,
                                   .prefill_flags = flags,
                                   .decode_flags = flags});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    workers_ = workers;
  }
  Answer Ask(const v1::GenerateRequest& request) {
    Answer answer = Generate(cluster_->stub(), request);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    return answer;
  }
  static double ValueOf(const Process& process, const std::string& name) {
    const auto page = Scrape(process);
    EXPECT_TRUE(page.ok()) << page.status();
    return page.ok() ? page->Sum(name) : -1;
  }
  // Returns the sum of a metric over all workers of the role that is in its name.
  double SumOf(const std::string& name) {
    double sum = 0;
    for (int i = 0; i < workers_; ++i) {
      sum += ValueOf(
          name.find("_prefill_") != std::string::npos ? cluster_->prefill(i) : cluster_->decode(i),
          name);
    }
    return sum;
  }

  std::unique_ptr<Cluster> cluster_;
  int workers_ = 0;
};

// A router that was started again knows only what workers tell it. So it finds a prompt only if it
// gives the prompt's blocks the names that the workers gave them.
TEST_F(PrefixCacheE2eTest, TheRouterNamesBlocksAsTheWorkersDo) {
  ASSERT_NO_FATAL_FAILURE(Start(1));
  v1::GenerateRequest request = TokenRequest(Prompt(3), 2);
  request.set_cache_salt("salt");
  Ask(request);
  ASSERT_TRUE(cluster_->RestartRouter().ok());
  ASSERT_TRUE(cluster_->WaitReady(1, 1, absl::Seconds(30)).ok());
  // The client's channel still has the connection to the router that ended.
  const absl::Time limit = absl::Now() + absl::Seconds(30);
  for (bool connected = false; !connected;) {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    connected = cluster_->stub().ListModels(&context, {}, &models).ok();
    ASSERT_LT(absl::Now(), limit);
  }
  while (ValueOf(cluster_->router(), "baton_router_prefix_index_names") < 25) {
    ASSERT_LT(absl::Now(), limit) << "the workers do not tell what they keep";
  }
  EXPECT_EQ(ValueOf(cluster_->router(), "baton_router_expected_cached_tokens_total"), 0);
  EXPECT_EQ(Ask(request).summary.usage().cached_tokens(), 384u);
  EXPECT_EQ(ValueOf(cluster_->router(), "baton_router_expected_cached_tokens_total"), 384);
  // Another salt has other names.
  request.set_cache_salt("other");
  EXPECT_EQ(Ask(request).summary.usage().cached_tokens(), 0u);
  EXPECT_EQ(ValueOf(cluster_->router(), "baton_router_expected_cached_tokens_total"), 384);
}

// Four answers: the prompt is computed once and pulled once, but for its last block.
TEST_F(PrefixCacheE2eTest, SeveralAnswersShareOnePrefillAndOnePull) {
  ASSERT_NO_FATAL_FAILURE(Start(2));
  Ask(TokenRequest(Prompt(3), 2));
  EXPECT_EQ(SumOf("baton_prefill_prompt_tokens_total"), 400);
  const double bytes = SumOf("baton_decode_pulled_bytes_total");
  v1::GenerateRequest request = TokenRequest(Prompt(4), 2);
  request.mutable_sampling()->set_n(4);
  EXPECT_EQ(Ask(request).others.size(), 3u);
  EXPECT_EQ(SumOf("baton_prefill_prompt_tokens_total"), 400 + 400 + 3 * 16);
  EXPECT_EQ(SumOf("baton_decode_pulled_bytes_total"), bytes * (1 + 28. / 25));
  EXPECT_EQ(SumOf("baton_decode_cached_tokens_total"), 3 * 384);
}

}  // namespace
}  // namespace baton
