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
#include "kernels/backend/dtype.h"
#include "kernels/device/runtime/kernel.h"

namespace baton {

// What one device is, asked once.
struct DeviceInfo {
  std::string name;  // as the driver calls it
  std::string id;    // its UUID: the same device in every process of a node
  int multiprocessors = 0;
  int major = 0, minor = 0;  // compute capability
  size_t total_bytes = 0;
  size_t shared_bytes = 0;  // of one block, at most
  // Of device memory: that a stream for products allocates, and that the driver should find for
  // what it allocates itself, such as graphs and kernels that are loaded when they are first used.
  size_t workspace_bytes = 0, driver_bytes = 0;
  // And that the driver took for this process already.
  size_t context_bytes = 0;
};

// What a stream is for. Where the device must choose, it starts kCompute's kernels first, and only
// there Product may be called: its workspace is one stream's own.
enum class StreamKind { kCompute, kCopy };

// Work in the order of the calls. The destructor waits until it has run.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
};

// A point in a stream's work. Waiting for one that was never recorded does not wait.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Work that was captured, to be run again and again, with the addresses and parameters that it was
// captured with. Replays of one graph run one after the other, whatever their streams. Destroyed
// only when they have run. Products use the workspace of the stream that they were captured on.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// out[rows, n] = in[rows, k] * weight[n, k]^T (+ out where `accumulate`). in and weight are bf16;
// sums are float. All in device memory, rows `*_stride` elements apart.
struct DenseProduct {
  const void* in = nullptr;
  int64_t in_stride = 0;
  const void* weight = nullptr;  // [n, k], without padding
  void* out = nullptr;
  int64_t out_stride = 0;
  DType out_type = DType::kBF16;  // or kF32
  int rows = 0, n = 0, k = 0;
  bool accumulate = false;
  // Which of the algorithms that the library proposes for these shapes, the one it thinks fastest
  // first. All but 0 are for benchmarks.
  int algorithm = 0;
};

// One device, and what is asked of it: the thinnest cover of the CUDA runtime and cuBLASLt that the
// backend and the transfers need, so that both run on the emulated device (emulated_runtime.h) as
// they do on a real one.
//
// Any thread may call; work of one stream comes from one thread at a time. Calls that put work on a
// stream return before it has run, and their pinned memory must live until it has. Work gets on
// without further calls only as far as another process waits for an interprocess event that was
// recorded behind it: whoever wants to see the rest asks (Synchronize, Query). An error of work
// that ran late is told by the next call that waits; Internal, and final for the process, as with
// CUDA. Wrong arguments are InvalidArgument.
//
// Between BeginCapture and EndCapture of a stream its work is recorded instead of run. The thread
// that captures may then not Allocate, Free, pin, CreateStream, Replay, Query or Synchronize, nor
// Copy where the call waits; nobody may Query or Synchronize the streams and events of the capture;
// and what is captured may neither wait for an event recorded outside, nor use plain host memory,
// nor record an interprocess event. All this is FailedPrecondition, and spoils the capture, whose
// EndCapture then fails. Other threads go on as they like.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual const DeviceInfo& info() const = 0;
  // Has `handler` called with what the device said when it failed for good, once: by the thread
  // that is told first and before its call returns, so that a handler which ends the process is
  // ahead of all who would act on the error. At once, if it has failed already. It may not call the
  // device. Replaces the one before, which under CUDA is the process's, as such errors are; null:
  // no handler.
  virtual void OnFailure(std::function<void(const absl::Status&)> handler) = 0;
  // What lies between this device and one of this node, named by its DeviceInfo::id: same, nvlink
  // or pcie; empty where that can't be told.
  virtual std::string LinkTo(absl::string_view device) = 0;
  // Bytes that may still be allocated; others may take them first.
  virtual absl::StatusOr<size_t> FreeBytes() = 0;

  // What an allocation takes of FreeBytes; small ones may share a page of the driver's.
  virtual size_t AllocationBytes(size_t bytes, bool interprocess = false) const = 0;

  // Device memory, aligned to 256, not initialised; the host may not touch it. ResourceExhausted
  // with what was asked and what is free. `interprocess`: ExportMemory may be called; takes whole
  // pages of 2 MiB, because such memory is shared by the page.
  virtual absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess = false) = 0;
  // Waits for the device first. Null is fine.
  virtual void Free(std::byte* memory) = 0;
  // Host memory that copies to and from the device are asynchronous with, aligned to 4096. Kernels
  // may use it too.
  virtual absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) = 0;
  // Waits for the device first. Null is fine.
  virtual void FreePinned(std::byte* memory) = 0;
  // The same for host memory that somebody else allocated, which must be writable.
  // FailedPrecondition where some of it is pinned already, or cannot be. Unpinned, by its first
  // byte, before it goes.
  virtual absl::Status PinHost(std::byte* memory, size_t bytes) = 0;
  virtual void UnpinHost(std::byte* memory) = 0;

  virtual absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream(
      StreamKind kind = StreamKind::kCompute) = 0;
  // `interprocess`: ExportEvent may be called.
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent(bool interprocess = false) = 0;

  // Between any two places of device, pinned or plain host memory, which do not overlap. Plain host
  // memory as source has been read when the call returns; as destination, and between two places of
  // the host, the call waits.
  virtual absl::Status Copy(void* to, const void* from, size_t bytes, DeviceStream& stream) = 0;
  // `rows` runs of `row_bytes`, the starts `*_pitch` bytes apart.
  virtual absl::Status CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                size_t row_bytes, size_t rows, DeviceStream& stream) = 0;
  // Every byte of a run of device memory.
  virtual absl::Status Fill(void* to, uint8_t value, size_t bytes, DeviceStream& stream) = 0;

  // `params` is copied by the call. InvalidArgument for a shape or size that no kernel may have.
  virtual absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const void* params,
                              DeviceStream& stream) = 0;
  template <typename Params>
  absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const Params& params,
                      DeviceStream& stream) {
    static_assert(std::is_trivially_copyable_v<Params>);
    if (sizeof(Params) != kernel.params_bytes) return WrongParams(kernel, sizeof(Params));
    return Launch(kernel, shape, static_cast<const void*>(&params), stream);
  }
  // Returns OK if Product works on this device. Returns FailedPrecondition, and says what is
  // missing, if the library that computes dense products is not on this machine; everything else
  // works.
  virtual absl::Status ProductStatus() = 0;
  // Returns InvalidArgument for sizes below 1 (rows may be 0) or strides below a row,
  // FailedPrecondition on a stream that was made for copies, ProductStatus() where that is an
  // error, and NotFound where the library proposes no such `algorithm`.
  virtual absl::Status Product(const DenseProduct& product, DeviceStream& stream) = 0;

  // Everything on `stream` so far. What is recorded later replaces it, for waits that come later.
  virtual absl::Status Record(DeviceEvent& event, DeviceStream& stream) = 0;
  // What is put on `stream` from now on runs after what `event` recorded last, in whatever process.
  virtual absl::Status WaitFor(DeviceEvent& event, DeviceStream& stream) = 0;
  // Whether all that `event` recorded has run.
  virtual absl::StatusOr<bool> Query(DeviceEvent& event) = 0;
  virtual absl::Status Synchronize(DeviceEvent& event) = 0;
  virtual absl::Status Synchronize(DeviceStream& stream) = 0;

  // Streams that wait for an event of a capturing stream are captured with it, and must be waited
  // for by it before the end.
  virtual absl::Status BeginCapture(DeviceStream& stream) = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture(DeviceStream& stream) = 0;
  virtual absl::Status Replay(DeviceGraph& graph, DeviceStream& stream) = 0;

  // Memory and events of this process, for others on this node. `memory` is what Allocate gave; it
  // must not be freed before every importer has closed it. Opaque bytes, of at most 256.
  // FailedPrecondition for what was not made interprocess, or was imported.
  virtual absl::StatusOr<std::string> ExportMemory(const std::byte* memory) = 0;
  virtual absl::StatusOr<std::string> ExportEvent(DeviceEvent& event) = 0;
  // InvalidArgument for bytes that are no handle; FailedPrecondition in the process that exported
  // it, where the device can't reach that memory, and when the exporter is gone. The same handle
  // again gives the same memory, which is then to be closed as often.
  virtual absl::StatusOr<std::byte*> ImportMemory(absl::string_view handle) = 0;
  // Waits for nothing, since another thread may be capturing: what uses it has run. Null is fine.
  virtual void CloseMemory(std::byte* memory) = 0;
  // Usable as the exporter's own, Record included.
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> ImportEvent(absl::string_view handle) = 0;

 protected:
  static absl::Status WrongParams(const Kernel& kernel, size_t bytes);
};

}  // namespace baton
