#include <algorithm>
#include <iostream>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/histories.h"
#include "common/base/log.h"
#include "common/rpc/retry_after.h"
#include "gtest/gtest.h"
#include "tests/sim/history.h"
#include "tests/sim/sim_cluster.h"

namespace baton {
namespace {

struct Totals {
  int answered = 0, cancelled = 0, expired = 0, refused = 0, given_up = 0, no_workers = 0;
  int slow = 0;  // ended because the client read too slowly
  int kills = 0, sick = 0;
};

// One random history of a small cluster in trouble: workers fail, lie, stay silent or are killed;
// bursts of requests from three callers overload them; clients cancel, read slowly, and set
// deadlines; in half of the histories, all clocks differ. Everything follows from the seed.
class TroubleHistory {
 public:
  explicit TroubleHistory(uint64_t seed) : random_(seed), cluster_(OptionsFor(seed)) {
    for (int i = 0; i < cluster_.workers(); ++i) living_.push_back(i);
    for (const int worker : living_) {
      if (Below(4) == 0) MakeSick(worker);
    }
  }

  void Run(Totals* totals) {
    absl::Time arrival = cluster_.now();
    const int requests = 4 + Below(9);
    const int gap = 1 + Below(8000);  // microseconds; a small gap overloads the workers
    for (int i = 0; i < requests; ++i) {
      arrival += absl::Microseconds(Below(gap));
      clients_.push_back(cluster_.Add(Request(i, arrival), Below(cluster_.routers())));
      if (Below(8) == 0) clients_.back()->cancel_at = arrival + absl::Milliseconds(1 + Below(60));
      if (Below(12) == 0) clients_.back()->takes = absl::Milliseconds(Below(3000));
      if (Below(6) == 0) {
        cluster_.At(arrival, [this] {
          // Some workers get well, others become sick, one may die.
          const int worker = living_[Below(static_cast<int>(living_.size()))];
          if (Below(3) == 0) {
            KillAndRestart();
          } else if (Below(2) == 0) {
            cluster_.SetHealth(worker, SimCluster::Health::kWell);
          } else {
            MakeSick(worker);
          }
        });
      }
    }
    cluster_.RunUntilIdle(absl::Minutes(10));
    cluster_.RunUntil(settled_at_);
    for (const SimClient* client : clients_) Check(*client, totals);
    cluster_.ExpectAllBack();
    totals->kills += kills_;
    totals->sick += sick_;
  }

 private:
  static constexpr int kContext = 96;

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(std::max(1, n))); }

  static SimCluster::Options OptionsFor(uint64_t seed) {
    std::mt19937_64 random(seed * 7919 + 1);
    SimCluster::Options options;
    options.seed = seed;
    options.routers = Between(random, 1, 2);
    options.prefill_workers = Between(random, 1, 2);
    options.decode_workers = Between(random, 1, 3);
    options.context = kContext;
    options.prefill_blocks = Between(random, 13, 40);
    options.decode_blocks = Between(random, 13, 40);
    options.prefill = {.chunk_tokens = 8 * Between(random, 1, 8), .slice_bytes = 1024};
    options.decode = {.max_batch = Between(random, 2, 8),
                      .max_sequences = Between(random, 2, 8),
                      .chunk_tokens = Between(random, 4, 64)};
    options.mode = static_cast<ServingMode>(1 + random() % 3);
    options.adjust_router = [queued = Between(random, 2, 20), wait = Between(random, 20, 2000),
                             ahead = Between(random, 1, 100),
                             patience = Between(random, 20, 2000)](RouterCoreOptions* router) {
      router->max_queued = queued;
      router->max_queue_wait = absl::Milliseconds(wait);
      router->work_ahead = absl::Milliseconds(ahead);
      router->leg_silence_limit = absl::Milliseconds(500);
      router->forget_after = absl::Milliseconds(300);
      router->slow_client_limit = absl::Seconds(1);
      router->client_buffer_tokens = 4;
      router->pair_wait = router->room_wait = absl::Milliseconds(patience);
    };
    options.skewed_clocks = Between(random, 0, 1) == 1;
    return options;
  }

  void MakeSick(int worker) {
    using Health = SimCluster::Health;
    constexpr Health kKinds[] = {Health::kFails, Health::kSilent, Health::kLies};
    cluster_.SetHealth(worker, kKinds[Below(3)]);
    ++sick_;
  }

  void KillAndRestart() {
    if (living_.size() < 2) return;
    const auto chosen = living_.begin() + Below(static_cast<int>(living_.size()));
    const int worker = *chosen;
    living_.erase(chosen);
    const absl::Duration notice = absl::Milliseconds(Below(100));
    cluster_.Kill(worker, notice);
    ++kills_;
    const absl::Time back = cluster_.now() + absl::Milliseconds(1 + Below(60));
    cluster_.At(back, [this, worker] { living_.push_back(cluster_.Restart(worker, true)); });
    settled_at_ = std::max(back, cluster_.now() + notice) + absl::Seconds(1);
  }

  CheckedRequest Request(int index, absl::Time arrival) {
    CheckedRequest request;
    request.request_id = absl::StrCat("r", index);
    request.caller = std::string(1, "aaaabbc"[Below(7)]);
    const int prompt = Below(3) == 0 ? 1 + Below(60) : 1 + Below(16);
    for (int i = 0; i < prompt; ++i) request.prompt.push_back(Below(256));
    request.sampling.max_tokens = 1 + Below(24);
    request.sampling.seed = random_();
    if (Below(8) == 0) request.answers = 2;
    request.mode = static_cast<ServingMode>(Below(4));
    request.arrival = arrival;
    if (Below(2) == 0) request.deadline = arrival + absl::Milliseconds(1 + Below(2000));
    return request;
  }

  void Check(const SimClient& client, Totals* totals) {
    const CheckedRequest& request = client.request;
    const std::vector<TokenId> expected = cluster_.Expected(request);
    ASSERT_TRUE(client.status) << request.request_id;
    const absl::Status& status = *client.status;
    if (status.ok()) {
      ASSERT_EQ(client.tokens, expected) << request.request_id;
      ++totals->answered;
      return;
    }
    ASSERT_LE(client.tokens.size(), expected.size()) << request.request_id;
    EXPECT_TRUE(std::equal(client.tokens.begin(), client.tokens.end(), expected.begin()))
        << request.request_id;
    const absl::string_view why = status.message();
    const auto is = [&](absl::StatusCode code, absl::string_view words) {
      return status.code() == code && absl::StrContains(why, words);
    };
    using Code = absl::StatusCode;
    if (client.cancelled && absl::IsCancelled(status)) {
      ++totals->cancelled;
    } else if (absl::IsDeadlineExceeded(status) && request.deadline < absl::InfiniteFuture()) {
      ++totals->expired;
    } else if ((is(Code::kResourceExhausted, "overloaded: ") ||
                is(Code::kResourceExhausted, "the answer would end in about ")) &&
               RetryAfter(status)) {
      EXPECT_TRUE(client.tokens.empty()) << request.request_id << ": " << status;
      ++totals->refused;
    } else if (is(Code::kResourceExhausted, "the client read too slowly")) {
      ++totals->slow;
    } else if (is(Code::kUnavailable, "not tried again") || is(Code::kInternal, "gave up after") ||
               (is(Code::kResourceExhausted, "gave up after") && RetryAfter(status))) {
      ++totals->given_up;
    } else if (is(Code::kUnavailable, "; waited ") ||
               ((is(Code::kResourceExhausted, "every worker for its prompt was full") ||
                 is(Code::kResourceExhausted, "no decode worker had room")) &&
                RetryAfter(status))) {
      ++totals->no_workers;
    } else {
      EXPECT_TRUE(absl::StrContains(why, "another answer to the same request failed"))
          << request.request_id << ": " << status;
    }
  }

  std::mt19937_64 random_;
  SimCluster cluster_;
  std::vector<SimClient*> clients_;
  std::vector<int> living_;
  int kills_ = 0, sick_ = 0;
  absl::Time settled_at_ = absl::InfinitePast();
};

// BATON_TROUBLE_HISTORIES sets the number of histories, and BATON_SIM_SEED the seed of the first.
TEST(TroubleSimTest, AnswersAreRightAndFailuresAreThoseThatAreAllowed) {
  SetLogLevel(Severity::kError);
  Totals totals;
  const int first = Setting("BATON_SIM_SEED", 1);
  const int histories = Setting("BATON_TROUBLE_HISTORIES", Histories(1000, 10000));
  for (int seed = first; seed < first + histories; ++seed) {
    SCOPED_TRACE(absl::StrCat("BATON_SIM_SEED=", seed, " BATON_TROUBLE_HISTORIES=1"));
    TroubleHistory(static_cast<uint64_t>(seed)).Run(&totals);
    if (::testing::Test::HasFailure()) break;
  }
  std::cout << totals.answered << " answered, " << totals.cancelled << " cancelled, "
            << totals.expired << " expired, " << totals.refused << " refused, " << totals.slow
            << " read too slowly, " << totals.given_up << " given up, " << totals.no_workers
            << " without a worker, " << totals.kills << " kills, " << totals.sick << " sick\n";
  if (histories < 1000 || ::testing::Test::HasFailure()) return;
  EXPECT_GT(totals.answered, histories);
  for (const int count : {totals.cancelled, totals.expired, totals.refused, totals.slow,
                          totals.given_up, totals.no_workers, totals.kills, totals.sick}) {
    EXPECT_GT(count, 0);
  }
}

}  // namespace
}  // namespace baton
