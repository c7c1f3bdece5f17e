#include "common/up/supervisor.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using State = Supervisor::State;

constexpr int Exited(int status) { return status << 8; }  // status as waitpid() returns it
constexpr int Killed(int number) { return number; }

// Drives a supervisor of a router, a prefill worker and two decode workers. No real process is
// started.
class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() : supervisor_(Processes(), Callbacks()) { supervisor_.Begin(now_); }

  static std::vector<Supervisor::Process> Processes() {
    std::vector<Supervisor::Process> processes;
    UpOptions options;
    options.decode = 2;
    for (const ProcessSpec& spec : ProcessesOf(options)) {
      processes.push_back({.spec = spec, .stop_limit = absl::Seconds(35)});
    }
    return processes;
  }
  Supervisor::Callbacks Callbacks() {
    return {.start =
                [this](const Supervisor::Process& process) {
                  done_.push_back(absl::StrCat("start ", process.spec.name));
                  if (cannot_start_.count(process.spec.name)) {
                    supervisor_.OnStartFailed(process.spec.name, "no memory", now_);
                  }
                },
            .signal =
                [this](const Supervisor::Process& process, int number) {
                  done_.push_back(
                      absl::StrCat(number == SIGTERM ? "term " : "kill ", process.spec.name));
                },
            .note = [this](absl::string_view line) { notes_.emplace_back(line); }};
  }
  // Returns the actions that the supervisor asked for since the last call of Done.
  std::vector<std::string> Done() { return std::exchange(done_, {}); }

  void BeginServing() {
    supervisor_.OnAddress("router", "127.0.0.1:5", now_);
    for (const char* name : {"prefill-1", "decode-1", "decode-2"}) {
      supervisor_.OnAddress(name, "127.0.0.1:6", now_);
    }
    supervisor_.Serving();
    Done();
  }
  const Supervisor::Process& Process(size_t i) const { return supervisor_.processes()[i]; }

  absl::Time now_ = absl::UnixEpoch();
  std::vector<std::string> done_, notes_;
  std::set<std::string> cannot_start_;
  Supervisor supervisor_;
};

TEST_F(SupervisorTest, WorkersStartOnceTheRouterHasAnAddress) {
  EXPECT_THAT(Done(), ElementsAre("start router"));
  supervisor_.OnTime(now_ + absl::Seconds(100));
  EXPECT_THAT(Done(), IsEmpty());
  supervisor_.OnAddress("router", "127.0.0.1:5", now_);
  EXPECT_THAT(Done(), ElementsAre("start prefill-1", "start decode-1", "start decode-2"));
  EXPECT_EQ(supervisor_.router_address(), "127.0.0.1:5");
}

TEST_F(SupervisorTest, AnEndedProcessStartsAgainAfterAPauseThatDoublesUpToTenSeconds) {
  BeginServing();
  std::vector<absl::Duration> pauses;
  for (int i = 0; i < 8; ++i) {
    supervisor_.OnEnd("decode-1", Exited(1), now_);
    EXPECT_FALSE(Process(2).has_address);
    pauses.push_back(supervisor_.NextTime() - now_);
    supervisor_.OnTime(supervisor_.NextTime() - absl::Milliseconds(1));
    EXPECT_THAT(Done(), IsEmpty());
    now_ = supervisor_.NextTime();
    supervisor_.OnTime(now_);
    EXPECT_THAT(Done(), ElementsAre("start decode-1"));
  }
  const auto ms = [](int value) { return absl::Milliseconds(value); };
  EXPECT_THAT(pauses, ElementsAre(ms(200), ms(400), ms(800), ms(1600), ms(3200), ms(6400),
                                  ms(10000), ms(10000)));
  EXPECT_EQ(notes_[0], "decode-1 ended with status 1; it starts again in 200ms");
  EXPECT_EQ(supervisor_.failed(), nullptr) << "it served before";
}

TEST_F(SupervisorTest, AfterALongRunThePauseIsShortAgain) {
  BeginServing();
  for (int i = 0; i < 3; ++i) {
    supervisor_.OnEnd("prefill-1", Killed(SIGKILL), now_);
    now_ = supervisor_.NextTime();
    supervisor_.OnTime(now_);
  }
  now_ += absl::Seconds(30);
  supervisor_.OnEnd("prefill-1", Killed(SIGKILL), now_);
  EXPECT_EQ(supervisor_.NextTime() - now_, absl::Milliseconds(200));
  EXPECT_THAT(notes_.back(), HasSubstr("prefill-1 was killed by signal 9 (Killed)"));
}

TEST_F(SupervisorTest, ARefusalAtTheVeryFirstStartFailsTheWhole) {
  supervisor_.OnAddress("router", "127.0.0.1:5", now_);
  supervisor_.OnEnd("decode-2", Exited(2), now_);
  ASSERT_NE(supervisor_.failed(), nullptr);
  EXPECT_EQ(supervisor_.failed()->spec.name, "decode-2");
  EXPECT_EQ(Process(3).state, State::kRefused);
  EXPECT_EQ(supervisor_.NextTime(), absl::InfiniteFuture()) << "it is not tried again";
}

TEST_F(SupervisorTest, ARefusalAtALaterStartIsTriedAgain) {
  BeginServing();
  supervisor_.OnEnd("router", Killed(SIGSEGV), now_);
  now_ = supervisor_.NextTime();
  supervisor_.OnTime(now_);
  supervisor_.OnEnd("router", Exited(2), now_);  // the router's port is not free yet
  EXPECT_EQ(Process(0).state, State::kPausing);
  EXPECT_EQ(supervisor_.failed(), nullptr);
  EXPECT_EQ(supervisor_.router_address(), "127.0.0.1:5") << "where it comes back";
}

TEST_F(SupervisorTest, FiveEndsWithoutAnAddressFailTheStart) {
  supervisor_.OnAddress("router", "127.0.0.1:5", now_);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(supervisor_.failed(), nullptr) << i;
    supervisor_.OnEnd("decode-1", Killed(SIGABRT), now_);
    now_ = supervisor_.NextTime();
    supervisor_.OnTime(now_);
  }
  ASSERT_NE(supervisor_.failed(), nullptr);
  EXPECT_EQ(supervisor_.failed()->spec.name, "decode-1");
}

TEST_F(SupervisorTest, AProgramThatCannotBeStartedIsTriedAgainAndThenFailsTheStart) {
  cannot_start_ = {"prefill-1"};
  supervisor_.OnAddress("router", "127.0.0.1:5", now_);
  EXPECT_EQ(Process(1).state, State::kPausing);
  for (int i = 0; i < 4; ++i) {
    now_ = supervisor_.NextTime();
    supervisor_.OnTime(now_);
  }
  ASSERT_NE(supervisor_.failed(), nullptr);
  EXPECT_EQ(supervisor_.failed()->last_end, "could not be started: no memory");
}

TEST_F(SupervisorTest, TheRouterStopsFirstThenTheWorkers) {
  BeginServing();
  supervisor_.Stop(now_);
  EXPECT_THAT(Done(), ElementsAre("term router"));
  // during the stop a process is not restarted
  supervisor_.OnEnd("decode-2", Killed(SIGKILL), now_);
  supervisor_.OnEnd("router", Exited(0), now_);
  EXPECT_THAT(Done(), ElementsAre("term prefill-1", "term decode-1"));
  supervisor_.OnEnd("prefill-1", Exited(0), now_);
  EXPECT_FALSE(supervisor_.done());
  supervisor_.OnEnd("decode-1", Exited(0), now_);
  EXPECT_TRUE(supervisor_.done());
  EXPECT_EQ(supervisor_.NextTime(), absl::InfiniteFuture());
}

TEST_F(SupervisorTest, WhatOutlivesItsLimitIsKilled) {
  BeginServing();
  supervisor_.Stop(now_);
  EXPECT_EQ(supervisor_.NextTime(), now_ + absl::Seconds(35));
  Done();
  now_ += absl::Seconds(35);
  supervisor_.OnTime(now_);
  supervisor_.OnTime(now_);
  EXPECT_THAT(Done(), ElementsAre("kill router"));
  EXPECT_EQ(notes_.back(), "router did not stop in time and was killed");
}

TEST_F(SupervisorTest, ASecondStopHurriesAndAThirdKills) {
  BeginServing();
  supervisor_.Stop(now_);
  Done();
  supervisor_.Stop(now_);
  EXPECT_THAT(Done(),
              ElementsAre("term router", "term prefill-1", "term decode-1", "term decode-2"));
  EXPECT_EQ(supervisor_.NextTime(), now_ + absl::Seconds(5));
  supervisor_.OnEnd("router", Exited(130), now_);
  EXPECT_THAT(Done(), IsEmpty()) << "the workers know";
  supervisor_.Stop(now_);
  EXPECT_THAT(Done(), ElementsAre("kill prefill-1", "kill decode-1", "kill decode-2"));
}

TEST_F(SupervisorTest, AStopWhileTheRouterStartsEndsWithIt) {
  supervisor_.Stop(now_);
  EXPECT_THAT(Done(), ElementsAre("start router", "term router"));
  supervisor_.OnAddress("router", "127.0.0.1:5", now_);
  EXPECT_THAT(Done(), IsEmpty()) << "no worker starts any more";
  supervisor_.OnEnd("router", Killed(SIGTERM), now_);
  EXPECT_TRUE(supervisor_.done());
}

TEST_F(SupervisorTest, AStopDuringAPauseStartsNothing) {
  BeginServing();
  supervisor_.OnEnd("router", Exited(1), now_);
  supervisor_.Stop(now_);
  EXPECT_THAT(Done(), ElementsAre("term prefill-1", "term decode-1", "term decode-2"));
  now_ += absl::Seconds(1);
  supervisor_.OnTime(now_);
  EXPECT_THAT(Done(), IsEmpty());
}

}  // namespace
}  // namespace baton
