#include "common/worker/backend_factory.h"

#include <string>

#include "common/worker/test_backends.h"
#include "common/worker/worker_equipment.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(BackendFactoryTest, ShippedWorkersKnowTheCpuAndCudaAlone) {
  const WorkerEquipment shipped = ShippedEquipment();
  EXPECT_TRUE(shipped.flag_groups.empty());
  const BackendFactory cpu = FindBackend(shipped.backends, "cpu").value();
  EXPECT_FALSE(cpu.on_device());
  EXPECT_TRUE(cpu.reads_weights());
  const BackendFactory cuda = FindBackend(shipped.backends, "cuda").value();
  EXPECT_EQ(cuda.name, "cuda");
  EXPECT_TRUE(cuda.on_device());
  for (const std::string other : {"cuda-emulated", "fake", "tpu", "", "CPU"}) {
    const absl::Status status = FindBackend(shipped.backends, other).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "--backend is '" + other + "'; it takes cpu or cuda");
  }
}

TEST(BackendFactoryTest, MoreBackendsAreFoundAndListed) {
  std::vector<BackendFactory> backends = ShippedEquipment().backends;
  backends.push_back(EmulatedBackendFactory());
  backends.push_back(FakeBackendFactory());
  EXPECT_TRUE(FindBackend(backends, "cuda-emulated")->on_device());
  EXPECT_FALSE(FindBackend(backends, "fake")->reads_weights());
  EXPECT_EQ(FindBackend(backends, "tpu").status().message(),
            "--backend is 'tpu'; it takes cpu, cuda, cuda-emulated or fake");
  EXPECT_EQ(FindBackend({}, "cuda").status().message(), "--backend is 'cuda'; it takes cpu");
}

}  // namespace
}  // namespace baton
