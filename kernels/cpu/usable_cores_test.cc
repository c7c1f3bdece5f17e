#include "kernels/cpu/usable_cores.h"

#include <gtest/gtest.h>

#include "common/base/scratch_folder.h"

namespace baton::cpu {
namespace {

// A root folder with some files of a fake system.
class Root {
 public:
  Root& Add(const std::string& file, const std::string& text) {
    folder_.Write(file, text);
    return *this;
  }
  int cores() const { return QuotaCores(folder_.path()); }

 private:
  const ScratchFolder folder_;
};

constexpr char kSelf[] = "proc/self/cgroup";

TEST(UsableCoresTest, NoFileAndNoQuotaAreNoLimit) {
  EXPECT_EQ(Root().cores(), 0);
  EXPECT_EQ(Root().Add(kSelf, "0::/\n").cores(), 0);
  EXPECT_EQ(Root().Add(kSelf, "0::/\n").Add("sys/fs/cgroup/cpu.max", "max 100000\n").cores(), 0);
  EXPECT_EQ(Root().Add(kSelf, "nonsense\n:\n0::/a\n").Add("sys/fs/cgroup/a/cpu.max", "x\n").cores(),
            0);
  EXPECT_GE(UsableCores(), 1);
}

TEST(UsableCoresTest, TheLeastQuotaUpwardsInWholeCores) {
  EXPECT_EQ(Root().Add(kSelf, "0::/\n").Add("sys/fs/cgroup/cpu.max", "270000 100000\n").cores(), 2);
  EXPECT_EQ(Root().Add(kSelf, "0::/\n").Add("sys/fs/cgroup/cpu.max", "50000 100000\n").cores(), 1);
  EXPECT_EQ(Root()
                .Add(kSelf, "0::/pod/main\n")
                .Add("sys/fs/cgroup/pod/main/cpu.max", "800000 100000\n")
                .Add("sys/fs/cgroup/pod/cpu.max", "300000 100000\n")
                .cores(),
            3);
  // /proc/self/cgroup has the group's path on the host. In a container, the mounted cgroup folder
  // is this group itself.
  EXPECT_EQ(Root()
                .Add(kSelf, "0::/docker/0123\n")
                .Add("sys/fs/cgroup/cpu.max", "400000 100000\n")
                .cores(),
            4);
}

TEST(UsableCoresTest, VersionOneToo) {
  Root root;
  root.Add(kSelf, "7:memory:/m\n4:cpu,cpuacct:/box\n0::/\n")
      .Add("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "600000\n")
      .Add("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(root.cores(), 6);
  root.Add("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(root.cores(), 0);
}

}  // namespace
}  // namespace baton::cpu
