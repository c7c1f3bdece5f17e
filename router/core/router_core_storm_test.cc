#include <iostream>
#include <numeric>
#include <random>

#include "common/base/log.h"
#include "gtest/gtest.h"
#include "router/testing/core_harness.h"

namespace baton {
namespace {

using Code = absl::StatusCode;

// A random mix, sampled from one seed, of requests and faults: requests for one or several answers,
// some with logprobs of the prompt; cancels, deadlines, slow clients, and sequences that outgrow
// their rotary table; workers that fail, lie, vanish, stall, drain and come back. In all cases each
// client ends exactly once, an OK answer is complete and right, a failed answer never showed a
// wrong token or logprob, and nothing is left behind.
class Storm {
 public:
  explicit Storm(uint32_t seed, EventLog* log = nullptr,
                 RoutingPolicyKind policy = RoutingPolicyKind::kLeastLoaded)
      : random_(seed), h_(Options(policy), log) {
    for (int i = 0; i < 4; ++i) {
      AttachAnew(i);
    }
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) Step();
  }

  // Causes no further faults, and plays all open requests to their end.
  void Calm() {
    faults_ = false;
    for (int i = 0; i < 4; ++i) AttachAnew(i);
    for (auto& [key, client] : h_.clients) {
      client.reads = true;
      h_.Take(key);
    }
    for (int i = 0; i < 200000 && h_.core.requests() > 0; ++i) {
      if (h_.legs.empty() || Chance(20)) {
        h_.Advance(absl::Milliseconds(20));
        h_.ReportAll();
      } else {
        PlayLeg(RandomLeg());
      }
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
    }
    while (!h_.legs.empty()) h_.End(h_.legs.begin()->first, absl::CancelledError("cancelled"));
  }

  void Check() {
    ASSERT_EQ(h_.core.requests(), 0u);
    ASSERT_EQ(h_.core.legs(), 0u);
    ASSERT_EQ(h_.core.queued(), 0u);
    int ok = 0;
    for (const auto& [key, client] : h_.clients) {
      ASSERT_TRUE(client.status) << "client " << key << " was never finished";
      const Asked& asked = asked_.at(key);
      const bool whole = client.status->ok();
      if (whole) {
        ++ok;
        several_ += asked.answers > 1;
        scored_ += asked.scored;
      } else {
        ASSERT_NE(client.status->code(), Code::kDataLoss) << *client.status;
        ASSERT_NE(client.status->code(), Code::kInvalidArgument) << *client.status;
      }
      CheckScores(asked, client.scores, whole);
      CheckAnswer(asked, 0, client, whole);
      for (const auto& [index, answer] : client.others) {
        ASSERT_LT(static_cast<int>(index), asked.answers);
        CheckAnswer(asked, index, answer, whole);
      }
      if (whole) {
        ASSERT_EQ(client.others.size(), asked.answers - 1u);
      }
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "client " << key;
    }
    ASSERT_GT(ok, 0);
    // Only the faults that this test caused may count as data loss.
    ASSERT_LE(counters().data_loss, data_loss_);
    // No request runs any more, so the router must count no load at the two prefill workers. Both
    // take as many prompts as at the start.
    for (int i = 0; i < 2 * kPrompts; ++i) {
      CheckedRequest request = CoreHarness::Request({1, 2, 3}, 2);
      request.caller = "another";  // One that never had a deadline, so its requests may wait.
      h_.Arrive(std::move(request));
    }
    ASSERT_EQ(h_.legs.size(), 2u * kPrompts);
    ASSERT_EQ(h_.core.queued(), 0u);
  }

  const RouterCounters& counters() const { return h_.core.counters(); }
  // Number of requests for several answers that ended with OK.
  int several() const { return several_; }
  // Number of requests with logprobs of the prompt that ended with OK.
  int scored() const { return scored_; }
  int lies() const { return lies_; }

 private:
  static constexpr int kPrompts = 6;
  struct Asked {
    std::vector<TokenId> prompt;
    int tokens = 0;
    int answers = 1;
    bool scored = false;
  };
  struct Play {
    // Progress of the leg. Prefill leg: 1 after its ticket, 2 after its token. Decode leg: 1 after
    // Reserved.
    int stage = 0;
    int scored = 0;  // Prompt tokens whose logprobs were sent.
    int sent = 0;    // Answer tokens that a decode leg has sent.
  };

  static void CheckAnswer(const Asked& asked, uint32_t index, const ClientSide& answer,
                          bool whole) {
    const std::vector<TokenId> right = Continuation(asked.prompt, asked.tokens, index);
    ASSERT_LE(answer.tokens.size(), right.size());
    ASSERT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), right.begin()))
        << "answer " << index;
    for (size_t i = 0; i < answer.positions.size(); ++i) {
      ASSERT_EQ(answer.positions[i], asked.prompt.size() + i);
    }
    if (!whole) return;
    ASSERT_EQ(answer.tokens, right) << "answer " << index;
    ASSERT_TRUE(answer.finished && answer.summary);
    std::string text;
    for (const TokenId id : right) absl::StrAppend(&text, id, " ");
    ASSERT_EQ(answer.text, text);
  }
  static void CheckScores(const Asked& asked, const std::vector<v1::Token>& scores, bool whole) {
    ASSERT_LE(scores.size(), asked.scored ? asked.prompt.size() : 0);
    if (whole && asked.scored) {
      ASSERT_EQ(scores.size(), asked.prompt.size());
    }
    for (size_t i = 0; i < scores.size(); ++i) {
      ASSERT_EQ(scores[i].position(), i);
      ASSERT_EQ(scores[i].token_id(), asked.prompt[i]);
      ASSERT_EQ(scores[i].has_logprob(), i > 0);
      ASSERT_EQ(scores[i].logprob(), -0.5f * static_cast<float>(i));
    }
  }
  static RouterCoreOptions Options(RoutingPolicyKind policy) {
    RouterCoreOptions options = CoreHarness::Options();
    options.policy = policy;
    options.max_queued = 30;
    options.max_prompts_per_worker = kPrompts;
    // Check() fills all places, and the workers of a storm are slow.
    options.work_ahead = options.max_queue_wait = absl::InfiniteDuration();
    options.client_buffer_tokens = 3;
    options.slow_client_limit = absl::Seconds(2);
    options.pair_wait = absl::Seconds(10);
    options.room_wait = absl::Seconds(5);
    options.max_migrations = 20;
    options.auto_prompt_tokens = 4;
    options.auto_queue_tokens = 8;
    return options;
  }

  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  // Attaches worker `i` as a new process at its old address. Workers 0 and 1 are prefill, 2 and 3
  // decode.
  void AttachAnew(int i) {
    epochs_[i] = next_epoch_++;
    const std::string address = absl::StrCat("w", i, ":1");
    if (i < 2) {
      attach_[i] = h_.Attach(v1::WORKER_ROLE_PREFILL, address, epochs_[i]);
    } else {
      attach_[i] = h_.Attach(v1::WORKER_ROLE_DECODE, address, epochs_[i]);
    }
    // Every decode worker reports that its links to all prefill workers work. Without such a
    // report, the router pairs no workers.
    for (int d = 2; d < 4; ++d) {
      if (attach_[d] == 0) continue;
      v1::LoadReport& load = h_.loads.at(attach_[d]);
      load.clear_links();
      for (int p = 0; p < 2; ++p) {
        if (epochs_[p] == 0) continue;
        load.add_links()->set_epoch(epochs_[p]);
        load.mutable_links(load.links_size() - 1)->set_link("shm");
      }
      h_.Report(attach_[d]);
    }
  }

  LegKey RandomLeg() {
    auto it = h_.legs.begin();
    std::advance(it, static_cast<ptrdiff_t>(random_() % h_.legs.size()));
    return it->first;
  }

  absl::Status Fault() {
    static const Code codes[] = {
        Code::kUnavailable, Code::kResourceExhausted, Code::kFailedPrecondition,
        Code::kDataLoss,    Code::kDeadlineExceeded,  Code::kInternal,
        Code::kOk};
    const absl::Status fault(codes[random_() % std::size(codes)], "storm");
    data_loss_ += absl::IsDataLoss(fault);
    return fault;
  }

  // Ends an answer with a finish reason that does not fit the tokens of the answer.
  void Lie(LegKey key, bool too_early) {
    ++lies_;
    ++data_loss_;
    h_.Finish(key, too_early && Chance(50) ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP);
    if (const auto open = h_.legs.find(key); open != h_.legs.end()) h_.End(key, absl::OkStatus());
  }

  void PlayLeg(LegKey key) {
    OpenLeg& leg = h_.At(key);
    Play& play = plays_[key];
    if (leg.cancelled) {
      h_.End(key, absl::CancelledError("cancelled"));
      return;
    }
    if (faults_ && Chance(6)) {
      h_.End(key, Fault());
      return;
    }
    const int left = leg.max_tokens() - static_cast<int>(leg.tokens().size() - leg.prompt());
    const v1::SamplingParams& sampling =
        leg.prefill ? leg.prefill_request.sampling() : leg.decode_request.sampling();
    const bool computes_prompt = leg.prefill || !leg.decode_request.has_ticket();
    const int unscored = computes_prompt && sampling.has_prompt_logprobs()
                             ? static_cast<int>(leg.prompt()) - play.scored
                             : 0;
    if (play.stage == 1 && unscored > 0 && !leg.paused) {
      const int count = std::min<int>(unscored, 1 + static_cast<int>(random_() % 4));
      play.scored += count;
      h_.Scores(key, play.scored - count, count);
      return;
    }
    if (leg.prefill) {
      if (play.stage == 0) {
        ++play.stage;
        h_.Ticket(key);
      } else if (play.stage == 1) {
        ++play.stage;
        h_.First(key, left == 1 ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_UNSPECIFIED);
      }
      return;
    }
    if (leg.paused) return;
    if (faults_ && Chance(2)) {
      Lie(key, play.sent < left);
      return;
    }
    if (play.stage == 0) {
      ++play.stage;
      h_.Reserve(key);
    } else if (play.sent > 0 && play.sent < left && Chance(4)) {
      ++data_loss_;  // if it comes too soon after an earlier one
      h_.Outgrow(key);
      if (const auto open = h_.legs.find(key); open != h_.legs.end()) {
        h_.End(key, absl::FailedPreconditionError("outgrown"));
      }
    } else if (play.sent < left) {
      const int from = Chance(10) ? 0 : play.sent;
      const int count = std::min<int>(left - play.sent, 1 + static_cast<int>(random_() % 3));
      play.sent += count;
      h_.Tokens(key, from, play.sent - from);
    } else {
      h_.Finish(key);
      // Ends the worker's stream after its last message, unless the core has cancelled the RPC.
      if (const auto open = h_.legs.find(key); open != h_.legs.end()) h_.End(key, absl::OkStatus());
    }
  }

  void Step() {
    const uint32_t what = random_() % 1000;
    if (what < 120) {
      CheckedRequest request = CoreHarness::Request(
          std::vector<TokenId>(1 + random_() % 9, static_cast<TokenId>(random_() % 100)),
          1 + static_cast<int>(random_() % 12));
      request.mode = static_cast<ServingMode>(random_() % 4);
      if (Chance(20)) request.deadline = h_.now + absl::Milliseconds(random_() % 3000);
      if (Chance(20)) request.answers = 2 + static_cast<int>(random_() % 2);
      if (Chance(25)) request.sampling.prompt_logprobs = 2;
      const Asked asked = {request.prompt, request.sampling.max_tokens, request.answers,
                           request.sampling.prompt_logprobs.has_value()};
      asked_[h_.Arrive(std::move(request))] = asked;
    } else if (what < 135 && !h_.clients.empty()) {
      auto client = h_.clients.begin();
      std::advance(client, static_cast<ptrdiff_t>(random_() % h_.clients.size()));
      if (!client->second.status) h_.Tell(ClientCancelled{client->first});
    } else if (what < 170 && !h_.clients.empty()) {
      auto client = h_.clients.begin();
      std::advance(client, static_cast<ptrdiff_t>(random_() % h_.clients.size()));
      client->second.reads = !client->second.reads;
      if (client->second.reads) h_.Take(client->first);
    } else if (what < 178) {
      AttachAnew(static_cast<int>(random_() % 4));
    } else if (what < 184) {
      const int i = static_cast<int>(random_() % 4);
      if (attach_[i] != 0 && !h_.closed.count(attach_[i])) {
        h_.closed[attach_[i]] = absl::OkStatus();
        h_.Tell(WorkerDetached{attach_[i]});
      }
    } else if (what < 188) {
      const int i = static_cast<int>(random_() % 4);
      if (attach_[i] != 0) {
        v1::LoadReport& load = h_.loads.at(attach_[i]);
        load.set_draining(!load.draining());
        h_.Report(attach_[i]);
      }
    } else if (what < 300) {
      h_.Advance(absl::Milliseconds(1 + random_() % 300));
      if (!Chance(5)) h_.ReportAll();
    } else if (what < 303) {
      h_.Advance(absl::Seconds(6));  // No worker reports in this time, so all look dead.
      h_.ReportAll();
    } else if (what < 320) {
      h_.end_cancelled = !h_.end_cancelled;
    } else if (!h_.legs.empty()) {
      PlayLeg(RandomLeg());
    }
  }

  std::mt19937 random_;
  CoreHarness h_;
  bool faults_ = true;
  WorkerEpoch epochs_[4] = {};
  AttachKey attach_[4] = {};
  WorkerEpoch next_epoch_ = 100;
  std::map<RequestKey, Asked> asked_;
  std::map<LegKey, Play> plays_;
  int several_ = 0, scored_ = 0, lies_ = 0;
  uint64_t data_loss_ = 0;  // DataLoss faults that this test caused.
};

TEST(RouterCoreStormTest, EveryClientEndsOnceAndRightAndNothingIsLeft) {
  SetLogLevel(Severity::kError);  // A log line for each migration would be thousands of lines.
  RouterCounters sum;
  int several = 0, scored = 0, lies = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Storm storm(seed);
    storm.Run(4000);
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    storm.Calm();
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    storm.Check();
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    sum.arrived += storm.counters().arrived;
    sum.finished_ok += storm.counters().finished_ok;
    sum.migrations += storm.counters().migrations;
    sum.decode_refused += storm.counters().decode_refused;
    sum.shed += storm.counters().shed;
    sum.colocated += storm.counters().colocated;
    sum.outgrown += storm.counters().outgrown;
    sum.diverged += storm.counters().diverged;
    several += storm.several();
    scored += storm.scored();
    lies += storm.lies();
  }
  // The storm must have caused enough events of every kind, or the test proves nothing.
  EXPECT_GT(sum.finished_ok, sum.arrived / 4);
  EXPECT_GT(sum.migrations, 500u);
  EXPECT_GT(sum.colocated, 500u);
  EXPECT_GT(sum.decode_refused, 50u);
  EXPECT_GT(sum.outgrown, 300u);
  EXPECT_GT(several, 300);
  EXPECT_GT(scored, 500);
  EXPECT_GT(lies, 300);
  EXPECT_EQ(sum.diverged, 0u);
}

TEST(RouterCoreStormTest, EveryRoutingPolicyLeavesNothingAndAnswersRight) {
  SetLogLevel(Severity::kError);
  for (const RoutingPolicyKind policy : kRoutingPolicyKinds) {
    for (uint32_t seed = 1001; seed <= 1010; ++seed) {
      SCOPED_TRACE(absl::StrCat(RoutingPolicyName(policy), ", seed ", seed));
      Storm storm(seed, nullptr, policy);
      storm.Run(2000);
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
      storm.Calm();
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
      storm.Check();
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
    }
  }
}

// If $BATON_LOG_SEEDS is set to a number, prints a hash of the event logs of that number of runs,
// to compare two versions of the core.
TEST(RouterCoreStormTest, TheSameSeedGivesTheSameEventLog) {
  SetLogLevel(Severity::kError);
  const auto hash = [](int seeds) {
    return HashLogs("storm", seeds, [](uint64_t seed, EventLog* log) {
      Storm storm(static_cast<uint32_t>(seed), log);
      storm.Run(1000);
      storm.Calm();
    });
  };
  EXPECT_EQ(hash(3), hash(3));
  if (const int seeds = LogSeedsWanted(); seeds > 0) std::cout << hash(seeds) << "\n";
}

}  // namespace
}  // namespace baton
