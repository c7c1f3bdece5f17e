#include "kernels/device/emulated/emulated_runtime.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "kernels/device/emulated/emulated_address_space.h"
#include "kernels/device/emulated/emulated_copy.h"
#include "kernels/device/emulated/emulated_event.h"
#include "kernels/device/emulated/emulated_gemm.h"
#include "kernels/device/emulated/emulated_handle.h"
#include "kernels/device/emulated/emulated_memory.h"
#include "kernels/device/emulated/emulated_order.h"
#include "kernels/device/runtime/device_checks.h"
#include "kernels/device/simt/run_grid.h"
#include "kernels/device/simt/simt_entry.h"

namespace baton {
namespace {

class EmulatedRuntime : public DeviceRuntime {
 public:
  EmulatedRuntime(const EmulatedOptions& options, std::unique_ptr<EmulatedMemory> memory)
      : options_(options),
        space_(std::move(memory), options.check),
        order_(options.seed, &mutex_, &space_.device()) {
    info_.name = absl::StrCat("emulated device ", options.device);
    info_.id = absl::StrCat("EMULATED-", options.device);
    info_.multiprocessors = 4;
    info_.major = 8;
    info_.total_bytes = options.memory_bytes;
    info_.shared_bytes = 163 << 10;  // as on sm_80
  }

  const DeviceInfo& info() const override { return info_; }

  void OnFailure(std::function<void(const absl::Status&)> handler) override {
    MutexLock lock(&mutex_);
    order_.scheduler().OnFailure(std::move(handler));
  }

  std::string LinkTo(absl::string_view device) override {
    if (device == info_.id) return "same";
    return absl::StartsWith(device, "EMULATED-") && options_.peer_access ? "nvlink" : "";
  }

  absl::StatusOr<size_t> FreeBytes() override {
    MutexLock lock(&mutex_);
    return space_.device().free_bytes();
  }

  size_t AllocationBytes(size_t bytes, bool /*interprocess*/) const override {
    return EmulatedMemory::AllocationBytes(bytes);
  }

  absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess) override {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(CheckAllocation(bytes));
    RETURN_IF_ERROR(RefuseInCapture("Allocate"));
    if (options_.on_allocate) options_.on_allocate("Allocate", bytes);
    return space_.Allocate(bytes, interprocess);
  }

  void Free(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("Free").ok()) return;
    order_.scheduler().RunAll().IgnoreError();  // the next call that waits returns the error
    space_.Free(memory);
  }

  absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) override {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(CheckAllocation(bytes));
    RETURN_IF_ERROR(RefuseInCapture("AllocatePinned"));
    if (options_.on_allocate) options_.on_allocate("AllocatePinned", bytes);
    return space_.AllocatePinned(bytes);
  }

  void FreePinned(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("FreePinned").ok()) return;
    order_.scheduler().RunAll().IgnoreError();
    space_.FreePinned(memory);
  }

  absl::Status PinHost(std::byte* memory, size_t bytes) override {
    RETURN_IF_ERROR(CheckPin(memory, bytes));
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(RefuseInCapture("PinHost"));
    return space_.PinHost(memory, bytes);
  }

  void UnpinHost(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("UnpinHost").ok()) return;
    order_.scheduler().RunAll().IgnoreError();
    space_.UnpinHost(memory);
  }

  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream(StreamKind kind) override {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(RefuseInCapture("CreateStream"));
    return order_.CreateStream(kind);
  }

  absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent(bool interprocess) override {
    auto event = std::make_unique<EmulatedEvent>(&order_);
    if (interprocess) {
      ASSIGN_OR_RETURN(auto shared, SharedEvent::Create());
      event->shared = std::move(shared);
    }
    return event;
  }

  absl::Status Copy(void* to, const void* from, size_t bytes, DeviceStream& stream) override {
    RETURN_IF_ERROR(CheckCopy(to, from, bytes));
    return CopyChecked("Copy", to, bytes, from, {bytes, bytes, 1}, stream);
  }

  absl::Status CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                        size_t row_bytes, size_t rows, DeviceStream& stream) override {
    RETURN_IF_ERROR(CheckCopyRows(to, to_pitch, from, from_pitch, row_bytes, rows));
    return CopyChecked("CopyRows", to, to_pitch, from, {from_pitch, row_bytes, rows}, stream);
  }

  absl::Status Fill(void* to, uint8_t value, size_t bytes, DeviceStream& stream) override {
    RETURN_IF_ERROR(CheckFill(to, bytes));
    auto own = Own(stream);
    if (!own.ok() || bytes == 0) return own.status();
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(space_.CheckDevice("Fill: ", to, bytes));
    return order_.Put(**own, [this, to, value, bytes] {
      // Checked again, because memory may be freed before a graph is replayed.
      RETURN_IF_ERROR(space_.CheckDevice("Fill: ", to, bytes));
      memset(to, value, bytes);
      space_.MarkWritten(to, bytes);
      return absl::OkStatus();
    });
  }

  using DeviceRuntime::Launch;
  absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const void* params,
                      DeviceStream& stream) override {
    RETURN_IF_ERROR(CheckLaunch(kernel, shape, params, info_));
    const int threads = static_cast<const simt::SimtEntry*>(kernel.entry)->max_threads;
    if (shape.threads > threads) {
      return absl::InvalidArgumentError(absl::StrCat(kernel.name, ": blocks of ", shape.threads,
                                                     " threads; it was made for ", threads));
    }
    ASSIGN_OR_RETURN(auto own, Own(stream));
    auto copy = std::make_shared<std::vector<std::max_align_t>>(
        kernel.params_bytes / sizeof(std::max_align_t) + 1);
    memcpy(copy->data(), params, kernel.params_bytes);
    MutexLock lock(&mutex_);
    return order_.Put(*own,
                      [this, kernel, shape, copy] { return Run(kernel, shape, copy->data()); });
  }

  absl::Status GemmStatus() override {
    if (options_.gemms) return absl::OkStatus();
    return absl::FailedPreconditionError("this emulated device was opened without dense GEMMs");
  }

  absl::Status Gemm(const DenseGemm& gemm, DeviceStream& stream) override {
    RETURN_IF_ERROR(CheckGemm(gemm));
    ASSIGN_OR_RETURN(auto own, Own(stream));
    if (own->kind != StreamKind::kCompute) {
      return absl::FailedPreconditionError("Gemm: the stream was made for copies");
    }
    RETURN_IF_ERROR(GemmStatus());
    if (gemm.algorithm > 0) {
      return absl::NotFoundError(absl::StrCat("Gemm: algorithm ", gemm.algorithm,
                                              "; the emulated device has one, which is 0"));
    }
    if (gemm.rows == 0) return absl::OkStatus();
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(auto work, EmulatedGemmWork(&space_, gemm));
    return order_.Put(*own, std::move(work));
  }

  absl::Status Record(DeviceEvent& event, DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    ASSIGN_OR_RETURN(auto own_event, Own(event));
    MutexLock lock(&mutex_);
    return order_.Record(*own_event, *own);
  }

  absl::Status WaitFor(DeviceEvent& event, DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    ASSIGN_OR_RETURN(auto own_event, Own(event));
    MutexLock lock(&mutex_);
    return order_.WaitFor(*own_event, *own);
  }

  absl::StatusOr<bool> Query(DeviceEvent& event) override {
    ASSIGN_OR_RETURN(auto own, Own(event));
    MutexLock lock(&mutex_);
    return order_.Query(*own);
  }

  absl::Status Synchronize(DeviceEvent& event) override {
    ASSIGN_OR_RETURN(auto own, Own(event));
    MutexLock lock(&mutex_);
    return order_.Synchronize(*own);
  }

  absl::Status Synchronize(DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    MutexLock lock(&mutex_);
    return order_.Synchronize(*own);
  }

  absl::Status BeginCapture(DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    MutexLock lock(&mutex_);
    return order_.BeginCapture(*own);
  }

  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture(DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    MutexLock lock(&mutex_);
    return order_.EndCapture(*own);
  }

  absl::Status Replay(DeviceGraph& graph, DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    auto& g = static_cast<EmulatedGraph&>(graph);
    if (g.order != &order_) return OfAnother("graph");
    if (options_.on_replay) {
      RETURN_IF_ERROR(options_.on_replay());
    }
    MutexLock lock(&mutex_);
    return order_.Replay(g, *own);
  }

  absl::StatusOr<std::string> ExportMemory(const std::byte* memory) override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(auto handle, space_.ExportMemory(memory));
    handle.device = options_.device;
    return SealHandle(kEmulatedMaker, IpcKind::kMemory, handle);
  }

  absl::StatusOr<std::string> ExportEvent(DeviceEvent& event) override {
    ASSIGN_OR_RETURN(auto own, Own(event));
    const EmulatedEvent& e = *own;
    if (e.shared == nullptr || e.imported) {
      return absl::FailedPreconditionError(
          absl::StrCat("ExportEvent: the event ",
                       e.imported ? "was imported" : "was not created as an interprocess one"));
    }
    EmulatedHandle handle;
    handle.device = options_.device;
    handle.process = getpid();
    handle.file = e.shared->file();
    handle.inode = e.shared->inode();
    return SealHandle(kEmulatedMaker, IpcKind::kEvent, handle);
  }

  absl::StatusOr<std::byte*> ImportMemory(absl::string_view bytes) override {
    ASSIGN_OR_RETURN(auto handle,
                     OpenHandle<EmulatedHandle>(kEmulatedMaker, IpcKind::kMemory, bytes));
    if (handle.device != options_.device && !options_.peer_access) {
      return absl::FailedPreconditionError(absl::StrCat(
          "ImportMemory: ", info_.name, " can't reach memory of device ", handle.device));
    }
    ASSIGN_OR_RETURN(auto file, OpenFileOf(handle));
    MutexLock lock(&mutex_);
    auto memory = RefuseInCapture("ImportMemory").ok()
                      ? space_.ImportMemory(file, handle)
                      : absl::FailedPreconditionError("ImportMemory: the thread is capturing");
    close(file);
    return memory;
  }

  void CloseMemory(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("CloseMemory").ok()) return;
    space_.CloseMemory(memory);
  }

  absl::StatusOr<std::unique_ptr<DeviceEvent>> ImportEvent(absl::string_view bytes) override {
    ASSIGN_OR_RETURN(auto handle,
                     OpenHandle<EmulatedHandle>(kEmulatedMaker, IpcKind::kEvent, bytes));
    ASSIGN_OR_RETURN(auto file, OpenFileOf(handle));
    auto shared = SharedEvent::Open(file, handle.inode);
    close(file);
    RETURN_IF_ERROR(shared.status());
    auto event = std::make_unique<EmulatedEvent>(&order_);
    event->shared = *std::move(shared);
    event->imported = true;
    return event;
  }

 private:
  static absl::Status OfAnother(absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("this ", what, " is of another runtime"));
  }
  absl::StatusOr<EmulatedStream*> Own(DeviceStream& stream) {
    auto& own = static_cast<EmulatedStream&>(stream);
    if (own.order != &order_) return OfAnother("stream");
    return &own;
  }
  absl::StatusOr<EmulatedEvent*> Own(DeviceEvent& event) {
    auto& own = static_cast<EmulatedEvent&>(event);
    if (own.order != &order_) return OfAnother("event");
    return &own;
  }

  absl::Status CopyChecked(absl::string_view call, void* to, size_t to_pitch, const void* from,
                           const EmulatedCopy::Rows& rows, DeviceStream& stream) {
    auto own = Own(stream);
    if (!own.ok() || rows.bytes == 0 || rows.count == 0) return own.status();
    EmulatedStream& s = **own;
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const auto copy,
                     EmulatedCopy::Create(&space_, call, to, to_pitch, from, rows));
    const auto capture = EmulatedOrder::CaptureOf(s);
    if (capture != nullptr && copy.touches_plain()) {
      return capture->Spoil(absl::StrCat(call, ": plain host memory in a capture"));
    }
    const bool waits = capture == nullptr && copy.waits();
    if (waits) {
      RETURN_IF_ERROR(RefuseInCapture(call));
    }
    absl::Status status = order_.Put(s, copy.Work());
    if (!status.ok() || !waits) return status;
    return order_.scheduler().RunUntil(s.End());
  }

  absl::Status Run(const Kernel& kernel, const LaunchShape& shape, const void* params)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (options_.fails_after_kernels != 0 && kernels_run_ == options_.fails_after_kernels) {
      return absl::InternalError(absl::StrCat(kernel.name, ": ", info_.name, " was to fail after ",
                                              kernels_run_, " kernels"));
    }
    ++kernels_run_;
    simt::SimtOptions options;
    options.seed = order_.scheduler().Random();
    options.max_shared_bytes = info_.shared_bytes;
    options.memory = &space_.map();
    options.check = options_.check;
    absl::Status status = simt::RunGrid(kernel, shape, params, options);
    RETURN_IF_ERROR(status);
    status = space_.device().CheckMargins();
    if (status.ok()) return status;
    return absl::InternalError(absl::StrCat(kernel.name, ": ", status.message()));
  }

  // Returns FailedPrecondition if the calling thread is capturing, and makes that capture fail.
  absl::Status RefuseInCapture(absl::string_view call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return order_.Refuse(call);
  }

  const EmulatedOptions options_;
  DeviceInfo info_;
  Mutex mutex_;
  EmulatedAddressSpace space_ ABSL_GUARDED_BY(mutex_);
  EmulatedOrder order_ ABSL_GUARDED_BY(mutex_);
  int64_t kernels_run_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceRuntime>> CreateEmulatedRuntime(
    const EmulatedOptions& options) {
  ASSIGN_OR_RETURN(auto memory, EmulatedMemory::Create(options.memory_bytes));
  return std::make_unique<EmulatedRuntime>(options, std::move(memory));
}

}  // namespace baton
