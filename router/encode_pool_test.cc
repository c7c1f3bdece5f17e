#include "router/encode_pool.h"

#include <atomic>
#include <latch>
#include <memory>
#include <optional>
#include <set>
#include <string>
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
using ::testing::Le;

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
                             [&begun, gate] {
                               begun.count_down();
                               gate->wait();
                             })
                    .ok());
    begun.wait();
  }
  absl::Status Submit(const std::string& caller, size_t bytes) {
    const absl::Status status = pool_->Submit(caller, bytes, [this, caller] {
      MutexLock lock(&mutex_);
      order_.push_back(caller);
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
    const absl::Status status = pool_->Submit(caller, bytes, [this, caller, bytes, texts] {
      if (texts > 1) SubmitNext(caller, bytes, texts - 1);
      MutexLock lock(&mutex_);
      order_.push_back(caller);
      changed_.SignalAll();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
  // Waits until all texts of Submit() and SubmitOneByOne() are done. Returns the order in which
  // they began.
  std::vector<std::string> AwaitAll() {
    MutexLock lock(&mutex_);
    while (order_.size() < submitted_) changed_.Wait(&mutex_);
    return order_;
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
  ASSERT_TRUE(pool_->Submit("a", kLarge + 1, [&second] { second.count_down(); }).ok());
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
  const auto occupy = [&] {
    begun.count_down();
    end.wait();
  };
  const auto note = [&] {
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
  const absl::Status bytes = Submit("a", 5001);
  EXPECT_EQ(bytes.code(), absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 11; ++i) EXPECT_TRUE(Submit("a", 1).ok());
  EXPECT_TRUE(Submit("b", 1).ok());
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
}

TEST(AddressOfPeerTest, IsTheAddressWithoutThePort) {
  EXPECT_EQ(AddressOfPeer("ipv4:127.0.0.1:5000"), "ipv4:127.0.0.1");
  EXPECT_EQ(AddressOfPeer("ipv6:%5B::1%5D:5000"), "ipv6:%5B::1%5D");
  EXPECT_EQ(AddressOfPeer("unix:/tmp/a:b"), "unix:/tmp/a:b");
}

}  // namespace
}  // namespace baton
