#include "router/door/encode_pool.h"

#include <atomic>
#include <latch>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/retry_after.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::UnorderedElementsAre;

constexpr size_t kLarge = 1000;

// A pool of two threads. One of them is held by a large text, so that the other one does all small
// texts one after the other. The order of the texts is recorded.
class EncodePoolTest : public ::testing::Test {
 protected:
  EncodePoolTest() {
    Hold("holder of the large", kLarge + 1, &large_);
    Hold("holder of the small", 1, &small_);
  }
  ~EncodePoolTest() override {
    if (!small_.try_wait()) small_.count_down();
    if (!large_.try_wait()) large_.count_down();
    AwaitAll();
    pool_ = nullptr;
  }
  // Occupies a thread until `gate` opens.
  void Hold(const std::string& caller, size_t bytes, std::latch* gate) {
    std::latch begun(1);
    ASSERT_TRUE(pool_
                    ->Submit(caller, bytes,
                             [&begun, gate](const absl::Status&) {
                               begun.count_down();
                               gate->wait();
                             })
                    .ok());
    begun.wait();
  }
  absl::Status Submit(const std::string& caller, size_t bytes) {
    const absl::Status status =
        pool_->Submit(caller, bytes, [this, caller](const absl::Status& turn) {
          MutexLock lock(&mutex_);
          if (turn.ok()) order_.push_back(caller);
          if (!turn.ok()) evicted_.push_back({caller, turn});
          changed_.SignalAll();
        });
    submitted_ += status.ok();
    return status;
  }
  // Submits `texts` texts, each one when the one before it has begun.
  void SubmitOneByOne(const std::string& caller, size_t bytes, int texts) {
    submitted_ += texts;
    SubmitNext(caller, bytes, texts);
  }
  void SubmitNext(const std::string& caller, size_t bytes, int texts) {
    const absl::Status status =
        pool_->Submit(caller, bytes, [this, caller, bytes, texts](const absl::Status&) {
          if (texts > 1) SubmitNext(caller, bytes, texts - 1);
          MutexLock lock(&mutex_);
          order_.push_back(caller);
          changed_.SignalAll();
        });
    EXPECT_TRUE(status.ok()) << status;
  }
  // Waits until all texts of Submit() and SubmitOneByOne() are done or evicted. Returns the order
  // in which they began.
  std::vector<std::string> AwaitAll() {
    MutexLock lock(&mutex_);
    while (order_.size() + evicted_.size() < submitted_) changed_.Wait(&mutex_);
    return order_;
  }
  // Returns the callers of the texts that were evicted, in this order.
  std::vector<std::string> Evicted() {
    MutexLock lock(&mutex_);
    std::vector<std::string> callers;
    for (const auto& [caller, status] : evicted_) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_TRUE(RetryAfter(status).has_value()) << status;
      callers.push_back(caller);
    }
    return callers;
  }
  // Lets the thread for small texts run until all of them are done. Returns their order.
  std::vector<std::string> RunSmall() {
    small_.count_down();
    return AwaitAll();
  }

  std::latch large_{1}, small_{1};
  size_t submitted_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> order_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, absl::Status>> evicted_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<EncodePool> pool_ =
      std::make_unique<EncodePool>(EncodePool::Options{.threads = 2,
                                                       .max_waiting = 12,
                                                       .max_bytes = 5000,
                                                       .large_bytes = kLarge,
                                                       .max_remembered = 2});
};

TEST_F(EncodePoolTest, CallersTakeTurns) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Submit("a", 10).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Submit("b", 10).ok());
  EXPECT_THAT(RunSmall(), ElementsAre("a", "b", "a", "b", "a", "a"));
}

TEST_F(EncodePoolTest, TurnsAreWeighedByBytes) {
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Submit("a", 300).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Submit("b", 100).ok());
  EXPECT_THAT(RunSmall(), ElementsAre("a", "b", "b", "b", "a", "b"));
}

TEST_F(EncodePoolTest, WhatACallerHasHadCountsAlsoIfItSendsOneTextAtATime) {
  SubmitOneByOne("a", 900, 3);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Submit("b", 300).ok());
  EXPECT_THAT(RunSmall(), ElementsAre("a", "b", "b", "b", "a", "b", "b", "a"));
}

// One of the callers that are remembered is the holder of the large text.
TEST_F(EncodePoolTest, OfMoreCallersThanItRemembersThePoolForgetsTheOneThatHasHadTheLeast) {
  EXPECT_TRUE(Submit("a", 900).ok());
  EXPECT_TRUE(Submit("b", 800).ok());
  EXPECT_THAT(RunSmall(), ElementsAre("a", "b"));
  std::latch again(1);
  Hold("holder of the small", 1, &again);
  for (const char* caller : {"a", "b", "c"}) EXPECT_TRUE(Submit(caller, 10).ok());
  again.count_down();
  EXPECT_THAT(AwaitAll(), ElementsAre("a", "b", "b", "c", "a"));
}

TEST_F(EncodePoolTest, ALargeTextNeverTakesTheLastThread) {
  std::latch second(1);
  ASSERT_TRUE(
      pool_->Submit("a", kLarge + 1, [&second](const absl::Status&) { second.count_down(); }).ok());
  ASSERT_TRUE(Submit("b", 10).ok());
  EXPECT_THAT(RunSmall(), ElementsAre("b"));
  EXPECT_FALSE(second.try_wait());
  large_.count_down();
  second.wait();
}

// Four large texts would find a thread. The first two have almost as many bytes as are allowed. The
// third has too many beside them. The fourth would fit, but may not overtake the third.
TEST(EncodePoolLargeTextsTest, TheirBytesAreLimited) {
  EncodePool pool({.threads = 5, .large_bytes = kLarge, .max_large_bytes = 4 * kLarge});
  std::latch end(1), begun(3), done(2);
  std::atomic<bool> too_early = false;
  const auto occupy = [&](const absl::Status&) {
    begun.count_down();
    end.wait();
  };
  const auto note = [&](const absl::Status&) {
    if (!end.try_wait()) too_early = true;
    done.count_down();
  };
  ASSERT_TRUE(pool.Submit("a", kLarge + 1, occupy).ok());
  ASSERT_TRUE(pool.Submit("b", kLarge + 1, occupy).ok());
  ASSERT_TRUE(pool.Submit("c", 3 * kLarge, note).ok());
  ASSERT_TRUE(pool.Submit("d", kLarge + 1, note).ok());
  ASSERT_TRUE(pool.Submit("e", 1, occupy).ok());
  begun.wait();
  end.count_down();
  done.wait();
  EXPECT_FALSE(too_early);
}

TEST_F(EncodePoolTest, ItRefusesWhatIsTooMuch) {
  EXPECT_TRUE(Submit("a", 1).ok());
  const absl::Status bytes = Submit("a", 5000);
  EXPECT_EQ(bytes.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(bytes.message()), HasSubstr("1 texts of 1 bytes wait"));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Submit("a", 1).ok());
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(Submit("b", 1).ok());
  const absl::Status number = Submit("b", 1);
  EXPECT_EQ(number.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(number.message()), HasSubstr("12 texts of 12 bytes wait"));
  // Callers that are refused together do not come again together.
  std::set<absl::Duration> delays;
  for (int i = 0; i < 20; ++i) {
    const std::optional<absl::Duration> delay = RetryAfter(Submit("b", 1));
    ASSERT_TRUE(delay.has_value());
    EXPECT_THAT(*delay, AllOf(Ge(absl::Milliseconds(750)), Le(absl::Milliseconds(1250))));
    delays.insert(*delay);
  }
  EXPECT_GT(delays.size(), 10);
  EXPECT_THAT(Evicted(), IsEmpty());
}

TEST_F(EncodePoolTest, ATextOfAnySizeMayWaitAlone) {
  EXPECT_TRUE(Submit("a", 5001).ok());
  EXPECT_EQ(Submit("b", 5001).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Evicted(), IsEmpty());
  large_.count_down();
}

// The caller with the most bytes fills the pool. It loses its newest texts, but only to a caller
// that has fewer bytes.
TEST_F(EncodePoolTest, TheCallerWithTheMostBytesMakesRoomForOthers) {
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Submit("a", 1000).ok());
  EXPECT_EQ(Submit("a", 20).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Evicted(), IsEmpty());
  EXPECT_TRUE(Submit("b", 20).ok());
  EXPECT_THAT(Evicted(), ElementsAre("a"));
  EXPECT_TRUE(Submit("b", 1980).ok());
  EXPECT_THAT(Evicted(), ElementsAre("a", "a")) << "3,000 bytes of a and 2,000 of b";
  EXPECT_EQ(Submit("b", 1000).code(), absl::StatusCode::kResourceExhausted) << "they have the same";
  // One text of `a` is not enough for this one, and without two `a` would have less than it.
  EXPECT_EQ(Submit("c", 2500).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Evicted(), ElementsAre("a", "a")) << "nobody is evicted for nothing";
  large_.count_down();
  EXPECT_THAT(RunSmall(), UnorderedElementsAre("a", "a", "a", "b", "b"));
}

TEST_F(EncodePoolTest, TheCallerWithTheMostTextsMakesRoomForOthers) {
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(Submit("a", 10).ok());
  EXPECT_TRUE(Submit("b", 2000).ok());
  EXPECT_THAT(Evicted(), ElementsAre("a"));
  EXPECT_EQ(Submit("a", 10).code(), absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Submit("b", 10).ok());
  EXPECT_EQ(Submit("b", 10).code(), absl::StatusCode::kResourceExhausted) << "each has six";
  EXPECT_EQ(Evicted().size(), 6);
  large_.count_down();
  EXPECT_EQ(RunSmall().size(), 12);
}

// A caller that loses all its texts is forgotten as one whose texts have begun.
TEST_F(EncodePoolTest, ACallerMayLoseItsOnlyText) {
  EXPECT_TRUE(Submit("a", 5000).ok());
  EXPECT_TRUE(Submit("b", 100).ok());
  EXPECT_THAT(Evicted(), ElementsAre("a"));
  EXPECT_TRUE(Submit("a", 100).ok());
  EXPECT_THAT(RunSmall(), UnorderedElementsAre("a", "b"));
}

}  // namespace
}  // namespace baton
