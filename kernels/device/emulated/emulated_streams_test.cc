#include "kernels/device/emulated/emulated_streams.h"

#include <csignal>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace baton {
namespace {

class StreamSchedulerTest : public testing::Test {
 protected:
  StreamSchedulerTest() : scheduler_(3, &mutex_, memory_.get()) {}
  EmulatedWork Note(char name) {
    return [this, name] {
      ran_.push_back(name);
      return absl::OkStatus();
    };
  }
  static StreamPoint End(const std::shared_ptr<EmulatedQueue>& queue) {
    return {queue, queue->end()};
  }

  Mutex mutex_;
  std::unique_ptr<EmulatedMemory> memory_ = *EmulatedMemory::Create(4096);
  StreamScheduler scheduler_;
  std::string ran_;
};

TEST_F(StreamSchedulerTest, WorkThatFailsEndsEverything) {
  MutexLock lock(&mutex_);
  const auto a = scheduler_.CreateQueue(), b = scheduler_.CreateQueue();
  a->Push([] { return absl::InternalError("lost"); });
  a->Push(Note('a'));
  b->Push(End(a));
  b->Push(Note('b'));
  const absl::Status status = scheduler_.RunUntil(End(b));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(End(a).Reached() && End(b).Reached());
  EXPECT_EQ(scheduler_.RunAll(), status);
  EXPECT_EQ(ran_, "");
}

TEST_F(StreamSchedulerTest, AStreamThatWaitsForAnotherProcessDoesNotHoldUpOthers) {
  MutexLock lock(&mutex_);
  const std::shared_ptr<SharedEvent> event = *SharedEvent::Create();
  const auto a = scheduler_.CreateQueue(), b = scheduler_.CreateQueue();
  const uint32_t recording = *event->BeginRecording();
  a->Push(Note('1'));
  a->Push(SharedPoint{event, recording});
  a->Push(Note('3'));
  b->Push(Note('2'));
  EXPECT_TRUE(scheduler_.RunTowards(End(a)).ok());
  EXPECT_FALSE(End(a).Reached());
  EXPECT_TRUE(scheduler_.RunUntil(End(b)).ok());
  event->EndRecording(recording);
  EXPECT_TRUE(scheduler_.RunUntil(End(a)).ok());
  EXPECT_EQ(std::string(1, ran_.back()), "3");
}

TEST_F(StreamSchedulerTest, ARecordingWhoseProcessDiedCountsAsReached) {
  const std::shared_ptr<SharedEvent> event = *SharedEvent::Create();
  const pid_t child = fork();
  if (child == 0) {
    event->BeginRecording();
    pause();
  }
  while (event->recorded() == 0) sched_yield();
  const auto queue = scheduler_.CreateQueue();
  queue->Push(SharedPoint{event, event->recorded()});
  queue->Push(Note('a'));
  MutexLock lock(&mutex_);
  EXPECT_TRUE(scheduler_.RunTowards(End(queue)).ok());
  EXPECT_EQ(ran_, "");
  kill(child, SIGKILL);
  EXPECT_TRUE(scheduler_.RunUntil(End(queue)).ok());  // the child has ended but is not reaped yet
  EXPECT_EQ(ran_, "a");
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace baton
