#include "common/up/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(ProcessesTest, TheRouterComesFirst) {
  std::vector<std::string> names;
  UpOptions options;
  options.prefill = 2;
  for (const ProcessSpec& spec : ProcessesOf(options)) names.push_back(spec.name);
  EXPECT_THAT(names, ElementsAre("router", "prefill-1", "prefill-2", "decode-1"));
}

TEST(ProcessesTest, EachProgramGetsItsArguments) {
  UpOptions options;
  options.model = "/m";
  options.mode = "auto";
  options.flags[Role::kRouter] = {"--max-queued=3"};
  options.flags[Role::kDecode] = {"--routers=other:1", "--listen=h:2"};
  EXPECT_THAT(RouterArguments(options, "h:1", "h:8"),
              ElementsAre("--listen=h:1", "--http-listen=h:8", "--model=/m", "--mode=auto",
                          "--max-queued=3"));
  EXPECT_THAT(WorkerArguments(options, Role::kPrefill, "0.0.0.0:9"),
              ElementsAre("--listen=127.0.0.1:0", "--routers=127.0.0.1:9", "--model=/m"));
  EXPECT_THAT(
      WorkerArguments(options, Role::kDecode, "h:9"),
      ElementsAre("--listen=127.0.0.1:0", "--routers=h:9,other:1", "--model=/m", "--listen=h:2"));
}

TEST(ProcessesTest, MoreWorkersThanFitByThemselvesDivideTheMemory) {
  UpOptions options;
  EXPECT_THAT(MemoryFlags(options, Role::kDecode), IsEmpty());
  options.decode = 3;
  EXPECT_THAT(MemoryFlags(options, Role::kDecode), ElementsAre("--memory-share=0.2000"));
  EXPECT_THAT(MemoryFlags(options, Role::kPrefill), ElementsAre("--memory-share=0.2000"));
}

TEST(ProcessesTest, EveryWorkerSizesItsPoolByTheSameMemory) {
  UpOptions options;
  options.usable_memory_bytes = 5'000'000'000;
  for (const Role role : {Role::kPrefill, Role::kDecode}) {
    EXPECT_THAT(MemoryFlags(options, role), ElementsAre("--usable-memory=5000000000"));
  }
}

TEST(ProcessesTest, TheDemoModelHasASmallPoolUnlessTheUserSaysOtherwise) {
  UpOptions options;
  options.demo = true;
  EXPECT_THAT(MemoryFlags(options, Role::kDecode), ElementsAre("--kv-bytes=256Mi"));
  options.flags[Role::kDecode] = {"--kv-bytes=1Gi"};
  EXPECT_EQ(WorkerArguments(options, Role::kDecode, "h:9").back(), "--kv-bytes=1Gi")
      << "the last one wins";
}

TEST(ProcessesTest, WorkersOfOneGpuDivideItsMemory) {
  UpOptions options;
  options.decode = 2;
  options.flags[Role::kDecode] = {"--backend=cuda"};
  EXPECT_THAT(MemoryFlags(options, Role::kPrefill), IsEmpty());
  EXPECT_THAT(MemoryFlags(options, Role::kDecode), ElementsAre("--gpu-memory-utilization=0.4500"));
  options.flags[Role::kPrefill] = {"--backend=cuda"};
  EXPECT_THAT(MemoryFlags(options, Role::kDecode), ElementsAre("--gpu-memory-utilization=0.3000"));
}

TEST(ProcessesTest, AProcessGetsItsDrainGraceToStop) {
  UpOptions options;
  EXPECT_EQ(StopLimit(options, Role::kRouter), absl::Seconds(35));
  options.flags[Role::kRouter] = {"--drain-grace=2m"};
  EXPECT_EQ(StopLimit(options, Role::kRouter), absl::Seconds(125));
  EXPECT_EQ(StopLimit(options, Role::kDecode), absl::Seconds(35));
}

TEST(ProcessesTest, EveryAddressOfTheMachineIsReachedByLoopback) {
  EXPECT_EQ(ReachableAddress("0.0.0.0:7"), "127.0.0.1:7");
  EXPECT_EQ(ReachableAddress("[::]:7"), "[::1]:7");
  EXPECT_EQ(ReachableAddress("host:7"), "host:7");
}

}  // namespace
}  // namespace baton
