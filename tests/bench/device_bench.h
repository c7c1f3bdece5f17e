#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/backend/backend.h"
#include "kernels/cuda/open_device.h"
#include "tests/bench/bench_figures.h"

namespace baton {

// What the parts of device_bench share: the device, and how to time it. Errors end the program.
class DeviceBench {
 public:
  struct Options {
    bool emulated = false;  // shapes as small as they get
    bool products = true;   // false: as on a machine without cuBLASLt
    std::string filter;     // only figures whose name contains it
  };
  DeviceBench(const Options& options, BenchFigures* figures);
  ~DeviceBench();

  bool tiny() const { return options_.emulated; }
  DeviceRuntime& runtime() { return *device_.runtime; }
  const OpenedDevice& device() const { return device_; }
  DeviceStream& stream() { return *stream_; }
  BenchFigures& figures() { return *figures_; }
  // Whether the figure of this name is wanted (--filter).
  bool Wants(absl::string_view figure) const;
  // An error where the device computes no dense products: what is missing.
  absl::Status products();
  // On `runtime`, which is runtime() or stands before it. Computes products where the device does.
  std::unique_ptr<Backend> CreateBackend(DeviceRuntime* runtime);

  // Device memory until the end, holding bf16 numbers of a normal distribution: products of zeros
  // are faster.
  std::byte* Random(size_t bytes);
  // Device memory until the end, holding a copy of `values`.
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    return reinterpret_cast<T*>(UploadBytes(values.data(), values.size() * sizeof(T)));
  }
  // Device memory until the end, not initialised.
  std::byte* Memory(size_t bytes);
  void FreeAll();

  // Seconds of one piece of work, as rounds found them.
  struct Times {
    double median = 0, least = 0, most = 0;
  };
  struct Timed {
    std::function<absl::Status()> enqueue;  // the work to time
    std::function<absl::Status()> wait;     // until all that was enqueued has run
    int works = 1;                          // pieces of work that one `enqueue` does
  };
  // Times all of them in turns, round after round, each often enough in a round to be measured: so
  // they saw the same device. Each ran once before.
  std::vector<Times> Rounds(const std::vector<Timed>& timed);
  // Of work on stream().
  Timed OnStream(std::function<absl::Status()> enqueue);
  // Of a graph that holds work(0) to work(works - 1), which put their work on stream(). So the time
  // is the device's alone, without what the host does for each launch. The work runs once as it is
  // before it is captured, because a library may do for its first call what no capture may hold.
  Timed InGraph(const std::function<absl::Status(int)>& work, int works = 1);

  // A copy of 1 GiB (tiny: 1 MiB) within the device's memory, the yardstick of work that moves
  // bytes. `bytes` counts the bytes that it reads and those that it writes.
  struct Copy {
    Timed timed;
    double bytes;
  };
  Copy CopyYardstick();
  // A large bf16 product of random numbers, the yardstick of work that computes. Only where
  // products() is OK.
  struct Product {
    Timed timed;
    double flops;
  };
  Product ProductYardstick();

  static void Check(const absl::Status& status, const char* what);

 private:
  std::byte* UploadBytes(const void* values, size_t bytes);

  const Options options_;
  BenchFigures* const figures_;
  OpenedDevice device_;
  std::unique_ptr<DeviceStream> stream_;
  std::vector<std::unique_ptr<DeviceGraph>> graphs_;
  std::vector<std::byte*> memory_;
};

// Bytes a second, in units of 10^9.
BenchFigures::Figure RateFigure(std::string name, double bytes, const DeviceBench::Times& times);
BenchFigures::Figure MicrosecondsFigure(std::string name, const DeviceBench::Times& times);

// The parts, by the names of --only. Each gets a DeviceBench of its own.
void BenchCopies(DeviceBench& bench);
void BenchProducts(DeviceBench& bench);
void BenchAttention(DeviceBench& bench);
void BenchSteps(DeviceBench& bench);
void BenchHandover(DeviceBench& bench);
// The same work by other kernels, launches and algorithms, side by side.
void BenchAttentionVariants(DeviceBench& bench);
void BenchDraws(DeviceBench& bench);
void BenchProductAlgorithms(DeviceBench& bench);
// The owner of BenchHandover's pool, which the program starts itself as: until its input ends.
int RunHandoverOwner(bool emulated);

}  // namespace baton
