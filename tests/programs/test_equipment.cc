#include "tests/programs/test_equipment.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/worker/test_backends.h"
#include "kernels/fake/fake_backend.h"

ABSL_FLAG(uint64_t, emulated_device_bytes, uint64_t{1} << 30,
          "memory of each device of --backend=cuda-emulated, in bytes; such a device is a GPU "
          "emulated on the CPU, thousands of times slower");
ABSL_FLAG(
    int64_t, emulated_device_kernels, 0,
    "number of kernels after which the device of --backend=cuda-emulated fails for good; 0: never");
ABSL_FLAG(
    absl::Duration, fake_step, absl::ZeroDuration(),
    "time that each step of --backend=fake takes in addition, for streams as slow as those of "
    "a large model");

namespace baton {
namespace {

absl::StatusOr<OpenedDevice> OpenDeviceOfFlags(int gpu) {
  const int64_t kernels = absl::GetFlag(FLAGS_emulated_device_kernels);
  if (kernels < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--emulated-device-kernels is ", kernels, "; it takes 0 or more"));
  }
  const BackendFactory factory =
      EmulatedBackendFactory(absl::GetFlag(FLAGS_emulated_device_bytes), kernels);
  return factory.open_device(gpu);
}

}  // namespace

WorkerEquipment TestEquipment() {
  WorkerEquipment equipment = ShippedEquipment();
  BackendFactory emulated = EmulatedBackendFactory();
  emulated.open_device = OpenDeviceOfFlags;
  equipment.backends.push_back(std::move(emulated));
  BackendFactory fake = FakeBackendFactory();
  fake.make_weightless = [] {
    return CreateFakeBackend({.per_step = absl::GetFlag(FLAGS_fake_step), .spend = absl::SleepFor});
  };
  equipment.backends.push_back(std::move(fake));
  equipment.flag_groups.push_back(
      {"For tests, which also have --backend=cuda-emulated and --backend=fake",
       "emulated-device-bytes emulated-device-kernels fake-step"});
  equipment.check_cached_kv = true;
  return equipment;
}

}  // namespace baton
