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

// The device, and functions to time work on it. All parts of device_bench use them. Errors end the
// program.
class DeviceBench {
 public:
  struct Options {
    bool emulated = false;  // Use an emulated device and the smallest shapes.
    bool gemms = true;      // False: act as on a machine without cuBLASLt.
    std::string filter;     // Only figures whose name contains this text are measured.
  };
  DeviceBench(const Options& options, BenchFigures* figures);
  ~DeviceBench();

  bool tiny() const { return options_.emulated; }
  DeviceRuntime& runtime() { return *device_.runtime; }
  const OpenedDevice& device() const { return device_; }
  DeviceStream& stream() { return *stream_; }
  BenchFigures& figures() { return *figures_; }
  // Returns true if --filter selects the figure of this name.
  bool Wants(absl::string_view figure) const;
  // Returns OK if the device can compute GEMMs, else an error that says what is missing.
  absl::Status gemms();
  // Creates a backend on `runtime`, which is runtime() or a wrapper of it. The backend computes
  // gemms if the device can.
  std::unique_ptr<Backend> CreateBackend(DeviceRuntime* runtime);

  // Returns device memory filled with bf16 numbers of a normal distribution, because gemms of
  // zeros would be faster. Freed by FreeAll() or the destructor.
  std::byte* Random(size_t bytes);
  // Returns device memory with a copy of `values`. Freed by FreeAll() or the destructor.
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    return reinterpret_cast<T*>(UploadBytes(values.data(), values.size() * sizeof(T)));
  }
  // Returns device memory that is not initialised. Freed by FreeAll() or the destructor.
  std::byte* Memory(size_t bytes);
  void FreeAll();

  // Seconds that one piece of work takes, over all rounds.
  struct Times {
    double median = 0, min = 0, max = 0;
  };
  struct Timed {
    std::function<absl::Status()> enqueue;  // Enqueues the work to time.
    std::function<absl::Status()> wait;     // Waits until all enqueued work has run.
    int works = 1;                          // Pieces of work that one call of `enqueue` does.
  };
  // Times all items of `timed` in turn, for several rounds, so that all items see the device in the
  // same state. In each round, an item is repeated until the repetitions take long enough to be
  // timed. Each item also runs once before the first round.
  std::vector<Times> Rounds(const std::vector<Timed>& timed);
  // Returns an item for Rounds(): the work that `enqueue` puts on stream().
  Timed OnStream(std::function<absl::Status()> enqueue);
  // Returns an item for Rounds(): replays of a graph that holds work(0) to work(works - 1). Each
  // call of `work` puts its work on stream(). The measured time is the device's alone, without the
  // host's time for each launch. The work first runs once without capture, because the first call
  // of a library may do things that a graph can't capture.
  Timed InGraph(const std::function<absl::Status(int)>& work, int works = 1);

  // A copy of 1 GiB (tiny: 1 MiB) within the device's memory: the yardstick of work that moves
  // bytes. `bytes` counts both the bytes read and the bytes written.
  struct Copy {
    Timed timed;
    double bytes;
  };
  Copy CopyYardstick();
  // A large bf16 GEMM of random numbers. The times of kernels that mostly compute are compared with
  // its time. Allowed only if gemms() is OK.
  struct Gemm {
    Timed timed;
    double flops;
  };
  Gemm GemmYardstick();

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

// Returns a figure in GB/s (10^9 bytes per second).
BenchFigures::Figure RateFigure(std::string name, double bytes, const DeviceBench::Times& times);
BenchFigures::Figure MicrosecondsFigure(std::string name, const DeviceBench::Times& times);

// The parts of the benchmark. The flag --only selects them by name. Each part gets a DeviceBench of
// its own.
void BenchCopies(DeviceBench& bench);
void BenchGemms(DeviceBench& bench);
void BenchAttention(DeviceBench& bench);
void BenchSteps(DeviceBench& bench);
void BenchHandover(DeviceBench& bench);
// Parts of the benchmark that compare several kernels, launches or algorithms for the same work.
void BenchAttentionVariants(DeviceBench& bench);
void BenchSamples(DeviceBench& bench);
void BenchGemmAlgorithms(DeviceBench& bench);
// Runs the second process of BenchHandover: the owner of the KV pool that BenchHandover reads.
// BenchHandover starts this program a second time for it. Returns when standard input ends.
int RunHandoverOwner(bool emulated);

}  // namespace baton
