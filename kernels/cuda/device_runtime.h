#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/cuda/kernel.h"
#include "kernels/dtype.h"

namespace baton {

// What one device is, asked once.
struct DeviceInfo {
  std::string name;  // as the driver calls it
  std::string id;    // its UUID: the same device in every process of a node
  int multiprocessors = 0;
  int major = 0, minor = 0;  // compute capability
  size_t total_bytes = 0;
  size_t shared_bytes = 0;  // of one block, at most
};

// Work in the order of the calls. Destroyed only when what was put on it has run.
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
// captured with.
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
};

// One device, and what is asked of it: the thinnest cover of the CUDA runtime and cuBLASLt that the
// backend and the transfers need, so that both run on the emulated device (emulated_runtime.h) as
// they do on a real one.
//
// Any thread may call; work of one stream comes from one thread at a time. Calls that put work on a
// stream return before it has run, and their host memory must live until it has. An error of work
// that ran late is told by the next call that waits (Synchronize, Query); Internal, and final for
// the process, as with CUDA. Between BeginCapture and EndCapture of a stream its work is recorded
// instead of run; Allocate, Free, Synchronize and Query are then FailedPrecondition wherever CUDA
// refuses them.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual const DeviceInfo& info() const = 0;
  // Bytes that may still be allocated; others may take them first.
  virtual absl::StatusOr<size_t> FreeBytes() = 0;

  // Device memory, aligned to 256, not initialised; the host may not touch it. ResourceExhausted
  // with what was asked and what is free.
  virtual absl::StatusOr<std::byte*> Allocate(size_t bytes) = 0;
  // Waits for the device first. Null is fine.
  virtual void Free(std::byte* memory) = 0;
  // Host memory that copies to and from the device are asynchronous with, aligned to 4096.
  virtual absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) = 0;
  virtual void FreePinned(std::byte* memory) = 0;

  virtual absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() = 0;
  // `interprocess`: ExportEvent may be called.
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent(bool interprocess = false) = 0;

  // Between any two places of device, pinned or plain host memory. Plain host memory makes the call
  // wait, or copy first, as CUDA does.
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
  // InvalidArgument for sizes below 1 (rows may be 0) or strides below a row.
  virtual absl::Status Product(const DenseProduct& product, DeviceStream& stream) = 0;

  virtual absl::Status Record(DeviceEvent& event, DeviceStream& stream) = 0;
  // What is put on `stream` from now on runs after what `event` recorded last.
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
  virtual absl::StatusOr<std::string> ExportMemory(const std::byte* memory) = 0;
  virtual absl::StatusOr<std::string> ExportEvent(DeviceEvent& event) = 0;
  // InvalidArgument for bytes that are no handle; FailedPrecondition in the process that exported
  // it, and where the device can't reach that memory.
  virtual absl::StatusOr<std::byte*> ImportMemory(absl::string_view handle) = 0;
  virtual void CloseMemory(std::byte* memory) = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> ImportEvent(absl::string_view handle) = 0;

 protected:
  static absl::Status WrongParams(const Kernel& kernel, size_t bytes);
};

}  // namespace baton
