#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/open_device.h"
#include "tests/bench/bench_figures.h"

namespace baton {

// What the parts of device_bench share: the device, and how to time it. Errors end the program.
class DeviceBench {
 public:
  // `emulated`: shapes as small as they get.
  DeviceBench(bool emulated, BenchFigures* figures);
  ~DeviceBench();

  bool tiny() const { return emulated_; }
  DeviceRuntime& runtime() { return *device_.runtime; }
  const OpenedDevice& device() const { return device_; }
  DeviceStream& stream() { return *stream_; }
  BenchFigures& figures() { return *figures_; }
  // On `runtime`, which is runtime() or stands before it.
  std::unique_ptr<Backend> CreateBackend(DeviceRuntime* runtime);

  // Device memory until the end, holding bf16 numbers of a normal distribution: products of zeros
  // are faster.
  std::byte* Random(size_t bytes);
  void FreeAll();

  // Seconds of one call, as rounds found them.
  struct Times {
    double median = 0, least = 0, most = 0;
  };
  struct Timed {
    std::function<absl::Status()> enqueue;  // the work to time
    std::function<absl::Status()> wait;     // until all that was enqueued has run
  };
  // All of them in turns, round after round, each often enough in a round to be measured: so they
  // saw the same device. Each ran once before.
  std::vector<Times> Rounds(const std::vector<Timed>& timed);
  // Of work on stream().
  Timed OnStream(std::function<absl::Status()> enqueue);

  // A copy of most of a gigabyte, the yardstick of what moves bytes: those read and those written.
  struct Copy {
    Timed timed;
    double bytes;
  };
  Copy CopyYardstick();
  // A large bf16 product of random numbers, that of what computes.
  struct Product {
    Timed timed;
    double flops;
  };
  Product ProductYardstick();

  static void Check(const absl::Status& status, const char* what);

 private:
  const bool emulated_;
  BenchFigures* const figures_;
  OpenedDevice device_;
  std::unique_ptr<DeviceStream> stream_;
  std::vector<std::byte*> memory_;
};

// The parts, by the names of --only.
void BenchCopies(DeviceBench& bench);
void BenchProducts(DeviceBench& bench);
void BenchAttention(DeviceBench& bench);
void BenchSteps(DeviceBench& bench);
void BenchHandover(DeviceBench& bench);
// The owner of BenchHandover's pool, which the program starts itself as: until its input ends.
int RunHandoverOwner(bool emulated);

}  // namespace baton
