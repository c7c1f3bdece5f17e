#include <numeric>
#include <random>

#include "common/base/log.h"
#include "gtest/gtest.h"
#include "router/core_harness.h"

namespace baton {
namespace {

using Code = absl::StatusCode;

// Requests, cancels, deadlines, slow clients, and workers that fail, vanish, stall, drain and come
// back, all drawn from one seed. Whatever happens: each client ends exactly once, an OK answer is
// the whole right answer, a failed one never showed a wrong token, and nothing is left behind.
class Storm {
 public:
  explicit Storm(uint32_t seed) : random_(seed), h_(Options()) {
    for (int i = 0; i < 4; ++i) {
      AttachAnew(i);
    }
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) Step();
  }

  // Peace: everything that is still there comes to its end.
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
      const std::vector<TokenId> right = Continuation(asked_.at(key).prompt, asked_.at(key).tokens);
      ASSERT_LE(client.tokens.size(), right.size());
      ASSERT_TRUE(std::equal(client.tokens.begin(), client.tokens.end(), right.begin()))
          << "client " << key;
      for (size_t i = 0; i < client.positions.size(); ++i) {
        ASSERT_EQ(client.positions[i], asked_.at(key).prompt.size() + i);
      }
      if (client.status->ok()) {
        ++ok;
        ASSERT_EQ(client.tokens, right) << "client " << key;
        ASSERT_TRUE(client.finished && client.summary);
        std::string text;
        for (const TokenId id : right) absl::StrAppend(&text, id, " ");
        ASSERT_EQ(client.text, text);
      } else {
        ASSERT_NE(client.status->code(), Code::kDataLoss) << *client.status;
        ASSERT_NE(client.status->code(), Code::kInvalidArgument) << *client.status;
      }
    }
    ASSERT_GT(ok, 0);
    // Each worker's share is back to nothing: both take as many prompts as on the first day.
    for (int i = 0; i < 2 * kPrompts; ++i) h_.Arrive({1, 2, 3}, 2);
    ASSERT_EQ(h_.legs.size(), 2u * kPrompts);
    ASSERT_EQ(h_.core.queued(), 0u);
  }

  const RouterCounters& counters() const { return h_.core.counters(); }

 private:
  static constexpr int kPrompts = 6;
  struct Asked {
    std::vector<TokenId> prompt;
    int tokens;
  };
  struct Play {
    int stage = 0;  // prefill: ticket, first token; decode: promised
    int sent = 0;   // decode: tokens
  };
  static RouterCoreOptions Options() {
    RouterCoreOptions options = CoreHarness::Options();
    options.max_queued = 30;
    options.max_prompts_per_worker = kPrompts;
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

  // Worker 0 and 1 prefill, 2 and 3 decode; each time a new process at its old address.
  void AttachAnew(int i) {
    epochs_[i] = next_epoch_++;
    const std::string address = absl::StrCat("w", i, ":1");
    if (i < 2) {
      attach_[i] = h_.Attach(v1::WORKER_ROLE_PREFILL, address, epochs_[i]);
    } else {
      attach_[i] = h_.Attach(v1::WORKER_ROLE_DECODE, address, epochs_[i]);
    }
    // Every decode worker proves itself to whoever is new.
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
    return absl::Status(codes[random_() % std::size(codes)], "storm");
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
    if (play.stage == 0) {
      ++play.stage;
      h_.Promise(key);
    } else if (play.sent < left) {
      const int from = Chance(10) ? 0 : play.sent;
      const int count = std::min<int>(left - play.sent, 1 + static_cast<int>(random_() % 3));
      play.sent += count;
      h_.Tokens(key, from, play.sent - from);
    } else {
      h_.Finish(key);
      // The stream's own end follows, unless the core has cancelled it on the way.
      if (const auto open = h_.legs.find(key); open != h_.legs.end()) h_.End(key, absl::OkStatus());
    }
  }

  void Step() {
    const uint32_t what = random_() % 1000;
    if (what < 120) {
      CheckedRequest request = CoreHarness::Request(
          std::vector<TokenId>(1 + random_() % 9, static_cast<TokenId>(random_() % 100)),
          1 + static_cast<int>(random_() % 12));
      request.mode = static_cast<v1::ServingMode>(random_() % 4);
      if (Chance(20)) request.deadline = h_.now + absl::Milliseconds(random_() % 3000);
      const Asked asked = {request.prompt, request.sampling.max_tokens};
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
      h_.Advance(absl::Seconds(6));  // nobody reports: everything looks dead
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
};

TEST(RouterCoreStormTest, EveryClientEndsOnceAndRightAndNothingIsLeft) {
  SetLogLevel(Severity::kError);  // one line per migration would be thousands
  RouterCounters sum;
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
  }
  // A storm that hits nothing proves nothing.
  EXPECT_GT(sum.finished_ok, sum.arrived / 4);
  EXPECT_GT(sum.migrations, 500u);
  EXPECT_GT(sum.colocated, 500u);
  EXPECT_GT(sum.decode_refused, 50u);
}

}  // namespace
}  // namespace baton
