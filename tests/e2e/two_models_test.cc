// Tests workers of two models behind one router, as in a rollout from one model to another: no
// answer mixes the two models. Also tests workers that can't work together: every client gets the
// reason.

#include <atomic>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/e2e/e2e_test.h"
#include "tests/shell/run_shell.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kAnswers = 4;
// Token ids of the answers to one request, by the index of the answer.
using Answers = std::vector<std::vector<int32_t>>;

// Returns the flags of a worker whose model has the configuration of the demo model, and random
// weights that depend on `seed`.
std::vector<std::string> ModelFlags(int seed) {
  return {"--random-weights", absl::StrCat("--weights-seed=", seed), "--kv-bytes=33554432"};
}

absl::StatusOr<std::unique_ptr<Process>> StartWorker(const Cluster& cluster,
                                                     const std::string& role, int seed,
                                                     const std::string& log) {
  std::vector<std::string> arguments = {
      absl::StrCat(BATON_BINARY_DIR, "/baton-", role), "--listen=127.0.0.1:0",
      absl::StrCat("--model=", BATON_SOURCE_DIR, "/common/model/demo"),
      absl::StrCat("--routers=", cluster.address()), "--threads=1"};
  for (const std::string& flag : ModelFlags(seed)) arguments.push_back(flag);
  return Process::Start(arguments, absl::StrCat(cluster.folder(), "/", log, ".log"));
}

// Returns requests with prompts of 3 to 200 tokens and four sampled answers each. The four answers
// differ from each other, but are the same in every run.
std::vector<v1::GenerateRequest> Requests() {
  std::vector<v1::GenerateRequest> requests;
  std::mt19937 random(18);
  for (const int length : {3, 20, 70, 200}) {
    std::vector<int32_t> prompt;
    for (int i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(random() % 4000 + 5));
    v1::GenerateRequest request = TokenRequest(prompt, 16);
    request.mutable_sampling()->set_n(kAnswers);
    request.mutable_sampling()->set_temperature(1);
    request.mutable_sampling()->set_seed(random());
    requests.push_back(std::move(request));
  }
  return requests;
}

Answers IdsOf(const Answer& answer) {
  Answers all = {answer.ids()};
  for (const Answer& other : answer.others) all.push_back(other.ids());
  return all;
}

// Sends the same few requests over and over from several threads, until Stop().
class Load {
 public:
  Load(Cluster* cluster, const std::vector<v1::GenerateRequest>& requests) {
    for (size_t t = 0; t < 3; ++t) {
      threads_.emplace_back([this, cluster, &requests, t] {
        for (size_t i = t; !stop_; ++i) {
          const size_t which = i % requests.size();
          const Answer answer = Generate(cluster->stub(), requests[which]);
          MutexLock lock(&mutex_);
          if (!answer.status.ok()) failures_.push_back(answer.status);
          answers_.emplace_back(which, IdsOf(answer));
          more_.SignalAll();
        }
      });
    }
  }
  ~Load() { Stop(); }
  void Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // Waits until `count` more requests have ended.
  void WaitForMore(size_t count) {
    MutexLock lock(&mutex_);
    const size_t until = answers_.size() + count;
    while (answers_.size() < until) more_.Wait(&mutex_);
  }
  // Returns the answers, each with the index of its request. Call only after Stop().
  const std::vector<std::pair<size_t, Answers>>& answers() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return answers_;
  }
  const std::vector<absl::Status>& failures() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return failures_;
  }

 private:
  std::atomic<bool> stop_ = false;
  Mutex mutex_;
  CondVar more_;
  std::vector<std::pair<size_t, Answers>> answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> failures_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

class TwoModelsTest : public ::testing::TestWithParam<std::string> {};

// Rolls out a new model. One decode worker of the old model is killed while workers of the new
// model are present. The other workers of the old model are drained once the new model serves. Each
// request asks for four answers, and all four must come from the same model.
TEST_P(TwoModelsTest, EveryAnswerOfARolloutIsWhollyOfOneModel) {
  auto started = Cluster::Start(
      {.prefill = 1,
       .decode = 2,
       .router_flags = {absl::StrCat("--mode=", GetParam()), "--identity-lead=500ms"},
       .prefill_flags = ModelFlags(1),
       .decode_flags = ModelFlags(1)});
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  const std::vector<v1::GenerateRequest> requests = Requests();
  const auto ask_in_peace = [&] {
    std::vector<Answers> all;
    for (const v1::GenerateRequest& request : requests) {
      const Answer answer = Generate(cluster.stub(), request);
      EXPECT_TRUE(answer.status.ok()) << answer.status;
      all.push_back(IdsOf(answer));
    }
    return all;
  };
  const std::vector<Answers> old_answers = ask_in_peace();
  std::vector<std::unique_ptr<Process>> fresh;
  const auto add = [&](const std::string& role) {
    auto worker = StartWorker(cluster, role, 2, absl::StrCat("new-", role, fresh.size()));
    ASSERT_TRUE(worker.ok()) << worker.status();
    ASSERT_TRUE((*worker)->WaitForLine("listening on ", kSoon).ok());
    fresh.push_back(*std::move(worker));
  };
  const auto router_says = [&](absl::string_view event) {
    const auto line = cluster.router().log().WaitFor(event, kSoon);
    ASSERT_TRUE(line.ok()) << event << ": " << line.status();
  };

  Load load(&cluster, requests);
  ASSERT_NO_FATAL_FAILURE(add("prefill"));
  ASSERT_NO_FATAL_FAILURE(add("decode"));
  router_says("worker_of_other_identity");
  load.WaitForMore(20);
  cluster.decode(0).Signal(SIGKILL);
  load.WaitForMore(20);
  ASSERT_NO_FATAL_FAILURE(add("decode"));
  router_says("identity_changed");
  load.WaitForMore(20);
  for (Process* old : {&cluster.decode(1), &cluster.prefill(0)}) {
    old->Signal(SIGTERM);
    EXPECT_TRUE(old->Wait(kSoon).ok());
  }
  load.WaitForMore(10);
  load.Stop();
  const std::vector<Answers> new_answers = ask_in_peace();

  for (const absl::Status& failure : load.failures()) ADD_FAILURE() << failure;
  int of_old = 0, of_new = 0;
  for (const auto& [which, answers] : load.answers()) {
    ASSERT_NE(old_answers[which], new_answers[which]);
    of_old += answers == old_answers[which];
    of_new += answers == new_answers[which];
    EXPECT_TRUE(answers == old_answers[which] || answers == new_answers[which])
        << "request " << which << " is of neither model alone";
  }
  RecordProperty("of_old", of_old);
  RecordProperty("of_new", of_new);
  EXPECT_GT(of_old, 30);
  EXPECT_GT(of_new, 20);
}

INSTANTIATE_TEST_SUITE_P(Modes, TwoModelsTest,
                         ::testing::Values("disaggregated", "colocated", "auto"),
                         [](const auto& info) { return info.param; });

Ended Client(const Cluster& cluster, const std::string& arguments) {
  return RunShell(absl::StrCat("exec ", BATON_BINARY_DIR, "/baton-client ", arguments,
                               " --router=", cluster.address(), " </dev/null"));
}

v1::Model OnlyModel(Cluster& cluster) {
  v1::ListModelsResponse models;
  grpc::ClientContext context;
  EXPECT_TRUE(cluster.stub().ListModels(&context, {}, &models).ok());
  EXPECT_EQ(models.models_size(), 1);
  return models.models_size() == 1 ? models.models(0) : v1::Model();
}

// If two workers can't be paired, the reason is given in every place where a user may look.
TEST(UnpairedWorkersTest, EverybodyIsToldWhy) {
  auto started = Cluster::Start({.router_flags = {"--pair-wait=300ms"},
                                 .prefill_flags = ModelFlags(1),
                                 .decode_flags = ModelFlags(2),
                                 .pairs = false});
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  const auto says = AllOf(HasSubstr(absl::StrCat("prefill worker ", cluster.prefill_address(0))),
                          HasSubstr(absl::StrCat("decode worker ", cluster.decode_address(0))),
                          HasSubstr(" have model "));
  const v1::Model model = OnlyModel(cluster);
  EXPECT_TRUE(model.has_serving());
  EXPECT_FALSE(model.serving());
  EXPECT_THAT(model.not_serving_because(), says);
  EXPECT_EQ(model.prefill_workers(), 0u) << "it is given nothing";
  EXPECT_EQ(model.decode_workers(), 0u);

  const Ended models = Client(cluster, "models");
  EXPECT_EQ(models.exit_status, 0);
  EXPECT_THAT(models.output, AllOf(HasSubstr("does not serve: "), says));
  const Ended health = Client(cluster, "health");
  EXPECT_EQ(health.exit_status, 1);
  EXPECT_THAT(health.output, AllOf(HasSubstr("NOT_SERVING\n"), says));
  const Ended asked = Client(cluster, "generate 'Why?'");
  EXPECT_EQ(asked.exit_status, 1);
  EXPECT_THAT(asked.output, AllOf(HasSubstr("UNAVAILABLE"), says));
  const auto warned = cluster.router().log().WaitFor("worker_without_partner", kSoon);
  ASSERT_TRUE(warned.ok()) << warned.status();
  EXPECT_THAT(*warned, AllOf(HasSubstr(" W "), says));

  // Starts a prefill worker that can be paired with the decode worker. This pair then answers
  // requests, and the router reports the first prefill worker as not used.
  auto partner = StartWorker(cluster, "prefill", 2, "partner");
  ASSERT_TRUE(partner.ok()) << partner.status();
  EXPECT_EQ(Client(cluster, "wait").exit_status, 0);
  const Ended serves = Client(cluster, "health");
  EXPECT_EQ(serves.exit_status, 0);
  EXPECT_THAT(serves.output,
              AllOf(HasSubstr("SERVING\n"), Not(HasSubstr("NOT_SERVING")),
                    HasSubstr(absl::StrCat("prefill worker ", cluster.prefill_address(0),
                                           " is not used: it has identity "))));
  const v1::Model served = OnlyModel(cluster);
  EXPECT_TRUE(served.serving());
  EXPECT_EQ(served.not_serving_because(), "");
  EXPECT_EQ(served.prefill_workers(), 1u);
  EXPECT_EQ(served.decode_workers(), 1u);
  EXPECT_EQ(served.unused_workers_size(), 1);
  EXPECT_THAT(
      Client(cluster, "models").output,
      HasSubstr(absl::StrCat("identity ", served.fingerprint(), "/", served.numerics_id())));
  EXPECT_EQ(Client(cluster, "generate 'Why?' --max-tokens=3").exit_status, 0);
}

}  // namespace
}  // namespace baton
