#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/device/runtime/kernel.h"
#include "kernels/formats/dtype.h"

namespace baton {

// Properties of one device, read once.
struct DeviceInfo {
  std::string name;  // the driver's name for the device
  std::string id;    // the device's UUID: the same in every process of a node
  int multiprocessors = 0;
  int major = 0, minor = 0;  // compute capability
  size_t total_bytes = 0;
  size_t shared_bytes = 0;  // max shared memory of a thread block
  // `workspace_bytes`: device memory that a kCompute stream allocates for GEMMs. `driver_bytes`:
  // device memory to leave free for the driver. The driver allocates memory for graphs, and for
  // each kernel at its first use.
  size_t workspace_bytes = 0, driver_bytes = 0;
  // Device memory that the driver has already taken for this process.
  size_t context_bytes = 0;
};

// The use of a stream. If the device has to choose between streams, it starts the kernels of
// kCompute streams first. Gemm may be called only on kCompute streams, because each of them has its
// own workspace.
enum class StreamKind { kCompute, kCopy };

// Runs work in the order of the calls. The destructor waits until all work has run.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
};

// A point in a stream's work. Waiting for an event that was never recorded has no effect.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Captured work that can be run again and again, with the addresses and parameters of the capture.
// Replays of one graph run one after the other, on whichever streams. A graph may be destroyed only
// when its replays have run. GEMMs use the workspace of the stream on which they were captured.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// Computes out[rows, n] = in[rows, k] * weight[n, k]^T (+ out if `accumulate`). `in` and `weight`
// are bf16; sums are float. All three are in device memory. Rows are `*_stride` elements apart.
struct DenseGemm {
  const void* in = nullptr;
  int64_t in_stride = 0;
  const void* weight = nullptr;  // [n, k], no padding
  void* out = nullptr;
  int64_t out_stride = 0;
  DType out_type = DType::kBF16;  // kBF16 or kF32
  int rows = 0, n = 0, k = 0;
  bool accumulate = false;
  // Index into the algorithms that the library proposes for these shapes, in the order of expected
  // speed. Values other than 0 are for benchmarks.
  int algorithm = 0;
};

// Interface of one device: the thinnest layer over the CUDA runtime and cuBLASLt that the backend
// and the transfers need. With it, both also run on the emulated device (emulated_runtime.h).
//
// Threads and order: any thread may call; the work of one stream comes from one thread at a time.
// Calls that put work on a stream return before the work has run. Pinned memory that the work uses
// must live until the work has run. Work need not run by itself: a caller that wants work to run
// calls Synchronize or Query. The exception is work before an interprocess event that another
// process waits for, which runs without further calls.
//
// Errors: wrong arguments give InvalidArgument. If work fails, the next call that waits returns
// Internal, and the device is lost for this process, as with CUDA.
//
// Captures: between BeginCapture and EndCapture of a stream, its work is recorded instead of run.
// The following calls return FailedPrecondition and make the capture fail at EndCapture:
// - on the capturing thread: Allocate, Free, pinning, CreateStream, Replay, Query, Synchronize, and
//   a Copy that waits;
// - on any thread: Query or Synchronize of the capture's streams and events;
// - as captured work: waiting for an event that was recorded outside of the capture, using plain
//   host memory, recording an interprocess event.
// Other threads are free to do anything else.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual const DeviceInfo& info() const = 0;
  // Sets the handler that is called once if the device fails for good, with the device's error. The
  // thread that first gets the error calls the handler before it returns the error. So a handler
  // that ends the process does so before any other code can act on the error. If the device has
  // already failed, OnFailure calls the handler immediately. The handler may not call the device.
  // The new handler replaces the previous one; with CUDA there is one per process, because such
  // errors affect the whole process. Null removes the handler.
  virtual void OnFailure(std::function<void(const absl::Status&)> handler) = 0;
  // Returns the kind of link between this device and another one of the node, given by its
  // DeviceInfo::id: "same", "nvlink" or "pcie". Returns an empty string if the link is not known.
  virtual std::string LinkTo(absl::string_view device) = 0;
  // Returns the bytes that can still be allocated. Other processes may take them first.
  virtual absl::StatusOr<size_t> FreeBytes() = 0;

  // Returns by how much an allocation reduces FreeBytes(). Small allocations may share a page of
  // the driver.
  virtual size_t AllocationBytes(size_t bytes, bool interprocess = false) const = 0;

  // Allocates device memory, aligned to 256 and not initialised. The host may not touch it. Returns
  // ResourceExhausted, with the bytes asked for and the bytes free. With `interprocess`,
  // ExportMemory may be called; the memory then takes whole pages of 2 MiB, because it is shared
  // page by page.
  virtual absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess = false) = 0;
  // Waits for the device, then frees memory from Allocate. `memory` may be null.
  virtual void Free(std::byte* memory) = 0;
  // Allocates host memory aligned to 4096. Copies between it and the device are asynchronous, and
  // kernels may use it.
  virtual absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) = 0;
  // Waits for the device, then frees memory from AllocatePinned. `memory` may be null.
  virtual void FreePinned(std::byte* memory) = 0;
  // Pins host memory that the caller owns; it must be writable. Returns FailedPrecondition if some
  // of it is pinned already or cannot be pinned. The caller must unpin it, by the address of its
  // first byte, before freeing it.
  virtual absl::Status PinHost(std::byte* memory, size_t bytes) = 0;
  virtual void UnpinHost(std::byte* memory) = 0;

  virtual absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream(
      StreamKind kind = StreamKind::kCompute) = 0;
  // Creates an event. ExportEvent accepts it only if `interprocess` is true.
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent(bool interprocess = false) = 0;

  // Copies between any two places in device, pinned or plain host memory, which must not overlap.
  // From plain host memory to the device, the source has been read when the call returns. To plain
  // host memory, and between two places of the host, the call waits for the copy.
  virtual absl::Status Copy(void* to, const void* from, size_t bytes, DeviceStream& stream) = 0;
  // Copies `rows` ranges of `row_bytes`, whose starts are `*_pitch` bytes apart.
  virtual absl::Status CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                size_t row_bytes, size_t rows, DeviceStream& stream) = 0;
  // Sets every byte of a range of device memory to `value`.
  virtual absl::Status Fill(void* to, uint8_t value, size_t bytes, DeviceStream& stream) = 0;

  // Puts a kernel on the stream. The call copies `params`. Returns InvalidArgument for a shape or
  // size that no kernel may have.
  virtual absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const void* params,
                              DeviceStream& stream) = 0;
  template <typename Params>
  absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const Params& params,
                      DeviceStream& stream) {
    static_assert(std::is_trivially_copyable_v<Params>);
    if (sizeof(Params) != kernel.params_bytes) return WrongParams(kernel, sizeof(Params));
    return Launch(kernel, shape, static_cast<const void*>(&params), stream);
  }
  // Returns OK if Gemm works on this device. Returns FailedPrecondition, naming what is missing, if
  // this machine lacks the library that computes GEMMs; everything else works.
  virtual absl::Status GemmStatus() = 0;
  // Computes a GEMM. Returns InvalidArgument for sizes below 1 (rows may be 0) and for
  // strides shorter than a row. Returns FailedPrecondition on a kCopy stream, the error of
  // GemmStatus() if there is one, and NotFound if the library does not propose this `algorithm`.
  virtual absl::Status Gemm(const DenseGemm& gemm, DeviceStream& stream) = 0;

  // Sets `event` to the point after all work on `stream` so far. A later recording replaces this
  // one, but only for waits that are called after it.
  virtual absl::Status Record(DeviceEvent& event, DeviceStream& stream) = 0;
  // Makes all work that is put on `stream` after this call wait for the latest recording of
  // `event`. Any process may have made this recording.
  virtual absl::Status WaitFor(DeviceEvent& event, DeviceStream& stream) = 0;
  // Returns true if all work before the latest recording of `event` has run.
  virtual absl::StatusOr<bool> Query(DeviceEvent& event) = 0;
  virtual absl::Status Synchronize(DeviceEvent& event) = 0;
  virtual absl::Status Synchronize(DeviceStream& stream) = 0;

  // Begins a capture of `stream`. Another stream joins the capture if it waits for an event of a
  // capturing stream. The capturing stream must wait for each stream that joined before EndCapture.
  virtual absl::Status BeginCapture(DeviceStream& stream) = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture(DeviceStream& stream) = 0;
  virtual absl::Status Replay(DeviceGraph& graph, DeviceStream& stream) = 0;

  // ExportMemory and ExportEvent return handles for other processes on this node: opaque strings of
  // at most 256 bytes. `memory` must come from Allocate and must not be freed before every importer
  // has closed it. Both return FailedPrecondition for memory and events that are imported or not
  // interprocess.
  virtual absl::StatusOr<std::string> ExportMemory(const std::byte* memory) = 0;
  virtual absl::StatusOr<std::string> ExportEvent(DeviceEvent& event) = 0;
  // Maps memory that another process exported. Importing the same handle again gives the same
  // address. The caller must close the memory as many times as it imported the handle. Returns
  // InvalidArgument if `handle` is not a handle. Returns FailedPrecondition in the process that
  // exported it, if the device cannot reach that memory, or if the exporter is gone.
  virtual absl::StatusOr<std::byte*> ImportMemory(absl::string_view handle) = 0;
  // Unmaps memory from ImportMemory. All work that uses the memory must have run: the call does not
  // wait, because another thread may be capturing. `memory` may be null.
  virtual void CloseMemory(std::byte* memory) = 0;
  // The imported event can be used like the exporter's own, including Record.
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> ImportEvent(absl::string_view handle) = 0;

 protected:
  static absl::Status WrongParams(const Kernel& kernel, size_t bytes);
};

}  // namespace baton
