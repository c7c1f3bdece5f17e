#include "common/base/usable_memory.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/scratch_folder.h"

namespace baton {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;
constexpr char kSelf[] = "proc/self/cgroup";

// A scratch root folder that holds files of a system's /proc and /sys.
class Root {
 public:
  Root() {
    // The machine has 24 GiB, and 22 GiB of it are available.
    Add("proc/meminfo",
        "MemTotal:       25165824 kB\nMemFree:         1048576 kB\n"
        "MemAvailable:   23068672 kB\n");
  }
  Root& Add(const std::string& file, const std::string& text) {
    folder_.Write(file, text);
    return *this;
  }
  UsableMemory memory() const { return ReadUsableMemory(folder_.path()); }

 private:
  const ScratchFolder folder_;
};

TEST(UsableMemoryTest, TheMachineWhereNoGroupSaysLess) {
  const UsableMemory memory = Root().memory();
  EXPECT_EQ(memory.bytes, 22 * kGib);
  EXPECT_EQ(memory.limit_bytes, 24 * kGib);
  EXPECT_EQ(memory.used_bytes, 2 * kGib);
  EXPECT_EQ(memory.limit, "/proc/meminfo");
  EXPECT_EQ(Root()
                .Add(kSelf, "0::/\n")
                .Add("sys/fs/cgroup/memory.max", "max\n")
                .Add("sys/fs/cgroup/memory.stat", "anon 5\n")
                .memory()
                .bytes,
            22 * kGib);
  EXPECT_EQ(Root()
                .Add(kSelf, "nonsense\n:\n0::/a\n")
                .Add("sys/fs/cgroup/a/memory.max", "x\n")
                .memory()
                .limit,
            "/proc/meminfo");
  // If a control group's limit is above the machine's memory, the limit has no effect.
  EXPECT_EQ(Root()
                .Add(kSelf, "0::/\n")
                .Add("sys/fs/cgroup/memory.max", absl::StrCat(64 * kGib))
                .memory()
                .limit,
            "/proc/meminfo");
}

TEST(UsableMemoryTest, VersionTwoCountsPageCacheAsFree) {
  Root root;
  root.Add(kSelf, "0::/pod/main\n")
      .Add("sys/fs/cgroup/pod/main/memory.max", absl::StrCat(4 * kGib))
      .Add("sys/fs/cgroup/pod/main/memory.current", absl::StrCat(4 * kGib - 4096))
      .Add("sys/fs/cgroup/pod/main/memory.stat",
           absl::StrCat("anon 1000\nfile ", 3 * kGib, "\nkernel 900\nkernel_stack 10\npagetables ",
                        "20\npercpu 30\nsock 40\nvmalloc 50\nshmem 2000\nfile_mapped ", kGib,
                        "\nslab_reclaimable 700\nslab_unreclaimable 60\n"));
  const UsableMemory memory = root.memory();
  EXPECT_EQ(memory.limit, "/sys/fs/cgroup/pod/main/memory.max");
  EXPECT_EQ(memory.limit_bytes, 4 * kGib);
  EXPECT_EQ(memory.used_bytes, 1000u + 2000 + 10 + 20 + 30 + 40 + 50 + 60);
  EXPECT_EQ(memory.bytes, 4 * kGib - memory.used_bytes);
  // Above memory.high the kernel slows the process down until it is useless, so that limit counts
  // too.
  root.Add("sys/fs/cgroup/pod/main/memory.high", absl::StrCat(3 * kGib));
  EXPECT_EQ(root.memory().limit, "/sys/fs/cgroup/pod/main/memory.high");
  EXPECT_EQ(root.memory().limit_bytes, 3 * kGib);
}

TEST(UsableMemoryTest, TheGroupAboveThatLeavesLessDecides) {
  Root root;
  root.Add(kSelf, "0::/slice/pod/main\n")
      .Add("sys/fs/cgroup/slice/pod/main/memory.max", absl::StrCat(4 * kGib))
      .Add("sys/fs/cgroup/slice/pod/main/memory.stat", "anon 0\n")
      .Add("sys/fs/cgroup/slice/memory.max", absl::StrCat(8 * kGib))
      .Add("sys/fs/cgroup/slice/memory.stat", absl::StrCat("anon ", 5 * kGib, "\n"));
  EXPECT_EQ(root.memory().limit, "/sys/fs/cgroup/slice/memory.max");
  EXPECT_EQ(root.memory().bytes, 3 * kGib);
  // In a container the path in /proc/self/cgroup exists only on the host. The group itself is
  // mounted at the root.
  EXPECT_EQ(Root()
                .Add(kSelf, "0::/docker/0123\n")
                .Add("sys/fs/cgroup/memory.max", absl::StrCat(kGib))
                .memory()
                .bytes,
            kGib);
}

TEST(UsableMemoryTest, VersionOneAndBothAtOnce) {
  Root root;
  root.Add(kSelf, "7:cpu,cpuacct:/box\n4:memory:/box/in\n0::/\n")
      .Add("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
      .Add("sys/fs/cgroup/memory/box/memory.limit_in_bytes", absl::StrCat(12 * kGib))
      .Add("sys/fs/cgroup/memory/box/memory.usage_in_bytes", absl::StrCat(11 * kGib))
      .Add("sys/fs/cgroup/memory/box/memory.stat",
           absl::StrCat("cache ", 10 * kGib, "\nrss 1\nshmem 2\ntotal_cache ", 10 * kGib,
                        "\ntotal_rss ", kGib, "\ntotal_shmem ", 2 * kGib, "\n"))
      .Add("sys/fs/cgroup/memory/box/in/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(root.memory().limit, "/sys/fs/cgroup/memory/box/memory.limit_in_bytes");
  EXPECT_EQ(root.memory().used_bytes, 3 * kGib);
  EXPECT_EQ(root.memory().bytes, 9 * kGib);
  root.Add("sys/fs/cgroup/unified/memory.max", absl::StrCat(5 * kGib));
  EXPECT_EQ(root.memory().limit, "/sys/fs/cgroup/unified/memory.max");
  EXPECT_EQ(root.memory().bytes, 5 * kGib);
}

TEST(UsableMemoryTest, ALimitThatIsUsedUpLeavesNothing) {
  const UsableMemory memory = Root()
                                  .Add(kSelf, "0::/\n")
                                  .Add("sys/fs/cgroup/memory.max", "1000\n")
                                  .Add("sys/fs/cgroup/memory.stat", "anon 2000\n")
                                  .memory();
  EXPECT_EQ(memory.bytes, 0u);
  EXPECT_EQ(memory.used_bytes, 2000u);
}

TEST(UsableMemoryTest, WithoutFilesThereIsNoLimitAndHereThereIsOne) {
  const ScratchFolder empty;
  EXPECT_EQ(ReadUsableMemory(empty.path()).bytes, UINT64_MAX);
  EXPECT_GT(ReadUsableMemory().bytes, 0u);
  EXPECT_LT(ReadUsableMemory().bytes, UINT64_MAX);
}

}  // namespace
}  // namespace baton
