#include "kernels/device/cuda/cuda_runtime.h"

#include <functional>
#include <map>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/device/cuda/cuda_gemms.h"
#include "kernels/device/cuda/cuda_handle.h"
#include "kernels/device/cuda/cuda_memory.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/device/runtime/device_capture.h"
#include "kernels/device/runtime/device_checks.h"
#include "kernels/device/runtime/ipc_handle.h"

namespace baton {
namespace {

constexpr size_t kSharedBytesWithoutAsking = 48 << 10;

class CudaRuntime;

struct CudaStream : DeviceStream {
  CudaStream(CudaRuntime* runtime, cudaStream_t stream) : runtime(runtime), stream(stream) {}
  ~CudaStream() override;

  CudaRuntime* const runtime;
  const cudaStream_t stream;
  bool computes = false;                   // true for StreamKind::kCompute
  std::byte* workspace = nullptr;          // memory for GEMMs; may be null
  std::shared_ptr<DeviceCapture> capture;  // null or ended: work runs instead of being captured
};

struct CudaEvent : DeviceEvent {
  CudaEvent(CudaRuntime* runtime, cudaEvent_t event) : runtime(runtime), event(event) {}
  ~CudaEvent() override;

  CudaRuntime* const runtime;
  const cudaEvent_t event;
  bool interprocess = false, imported = false;
  bool recorded = false;                   // recorded by this process
  std::shared_ptr<DeviceCapture> capture;  // capture that contains the latest recording, or null
};

struct CudaGraph : DeviceGraph {
  CudaGraph(CudaRuntime* runtime, cudaGraphExec_t graph) : runtime(runtime), graph(graph) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph); }

  CudaRuntime* const runtime;
  const cudaGraphExec_t graph;
};

class CudaRuntime : public DeviceRuntime {
 public:
  CudaRuntime(int device, const cudaDeviceProp& properties,
              absl::StatusOr<std::unique_ptr<CudaGemms>> gemms)
      : device_(device),
        info_(CudaDeviceInfo(properties)),
        gemms_(std::move(gemms)),
        memory_(std::string(properties.uuid.bytes, sizeof(properties.uuid.bytes)), &info_) {}

  const DeviceInfo& info() const override { return info_; }

  void OnFailure(std::function<void(const absl::Status&)> handler) override {
    OnCudaFailure(std::move(handler));
  }

  std::string LinkTo(absl::string_view device) override {
    if (device == info_.id) return "same";
    return CudaLink(device_, device);
  }

  absl::StatusOr<size_t> FreeBytes() override {
    Use();
    // Makes cuBLASLt allocate its memory now, so that FreeBytes() no longer counts this memory as
    // free.
    RETURN_IF_ERROR(BeginGemms());
    return memory_.FreeBytes();
  }

  size_t AllocationBytes(size_t bytes, bool interprocess) const override {
    return CudaMemory::AllocationBytes(bytes, interprocess);
  }

  absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess) override {
    RETURN_IF_ERROR(CheckAllocation(bytes));
    RETURN_IF_ERROR(RefuseInCapture("Allocate"));
    Use();
    return memory_.Allocate(bytes, interprocess);
  }

  void Free(std::byte* memory) override {
    if (memory == nullptr || !RefuseInCapture("Free").ok()) return;
    Use();
    memory_.Free(memory);
  }

  absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) override {
    RETURN_IF_ERROR(CheckAllocation(bytes));
    RETURN_IF_ERROR(RefuseInCapture("AllocatePinned"));
    Use();
    return memory_.AllocatePinned(bytes);
  }

  void FreePinned(std::byte* memory) override {
    if (memory == nullptr || !RefuseInCapture("FreePinned").ok()) return;
    Use();
    memory_.FreePinned(memory);
  }

  absl::Status PinHost(std::byte* memory, size_t bytes) override {
    RETURN_IF_ERROR(CheckPin(memory, bytes));
    RETURN_IF_ERROR(RefuseInCapture("PinHost"));
    Use();
    return memory_.PinHost(memory, bytes);
  }

  void UnpinHost(std::byte* memory) override {
    if (memory == nullptr || !RefuseInCapture("UnpinHost").ok()) return;
    Use();
    memory_.UnpinHost(memory);
  }

  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream(StreamKind kind) override {
    RETURN_IF_ERROR(RefuseInCapture("CreateStream"));
    Use();
    int min = 0, greatest = 0;
    absl::Status status = CudaStatus(cudaDeviceGetStreamPriorityRange(&min, &greatest),
                                     "cudaDeviceGetStreamPriorityRange");
    RETURN_IF_ERROR(status);
    cudaStream_t stream = nullptr;
    const int priority = kind == StreamKind::kCompute ? greatest : min;
    status = CudaStatus(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
                        "cudaStreamCreateWithPriority");
    RETURN_IF_ERROR(status);
    auto own = std::make_unique<CudaStream>(this, stream);
    own->computes = kind == StreamKind::kCompute;
    if (own->computes && gemms_.ok()) {
      ASSIGN_OR_RETURN(auto workspace,
                       memory_.Allocate(CudaGemms::kWorkspaceBytes, /*interprocess=*/false));
      own->workspace = workspace;
    }
    return own;
  }

  void Destroy(CudaStream& stream) {
    Use();
    if (const auto capture = CaptureOf(stream); capture != nullptr) {
      Spoil(*capture, "a stream of the capture was destroyed").IgnoreError();
      if (capture->IsOrigin(&stream)) Abandon(*capture, stream);
    }
    cudaStreamSynchronize(stream.stream);  // the next call that waits returns the error
    cudaStreamDestroy(stream.stream);
    if (stream.workspace != nullptr) memory_.Free(stream.workspace);
    cudaGetLastError();
  }

  absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent(bool interprocess) override {
    Use();
    cudaEvent_t event = nullptr;
    const unsigned flags =
        cudaEventDisableTiming | (interprocess ? cudaEventInterprocess : cudaEventDefault);
    RETURN_IF_ERROR(
        CudaStatus(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags"));
    auto own = std::make_unique<CudaEvent>(this, event);
    own->interprocess = interprocess;
    return own;
  }

  absl::Status Copy(void* to, const void* from, size_t bytes, DeviceStream& stream) override {
    RETURN_IF_ERROR(CheckCopy(to, from, bytes));
    auto own = Own(stream);
    if (!own.ok() || bytes == 0) return own.status();
    Use();
    RETURN_IF_ERROR(RefusePlain("Copy", to, from, **own));
    return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (*own)->stream),
                      "cudaMemcpyAsync");
  }

  absl::Status CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                        size_t row_bytes, size_t rows, DeviceStream& stream) override {
    absl::Status status = CheckCopyRows(to, to_pitch, from, from_pitch, row_bytes, rows);
    RETURN_IF_ERROR(status);
    auto own = Own(stream);
    if (!own.ok() || row_bytes == 0 || rows == 0) return own.status();
    Use();
    if (status = RefusePlain("CopyRows", to, from, **own); !status.ok()) return status;
    return CudaStatus(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, rows,
                                        cudaMemcpyDefault, (*own)->stream),
                      "cudaMemcpy2DAsync");
  }

  absl::Status Fill(void* to, uint8_t value, size_t bytes, DeviceStream& stream) override {
    RETURN_IF_ERROR(CheckFill(to, bytes));
    auto own = Own(stream);
    if (!own.ok() || bytes == 0) return own.status();
    Use();
    return CudaStatus(cudaMemsetAsync(to, value, bytes, (*own)->stream), "cudaMemsetAsync");
  }

  using DeviceRuntime::Launch;
  absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const void* params,
                      DeviceStream& stream) override {
    RETURN_IF_ERROR(CheckLaunch(kernel, shape, params, info_));
    ASSIGN_OR_RETURN(auto own, Own(stream));
    Use();
    if (shape.shared_bytes > 0) {
      RETURN_IF_ERROR(AllowShared(kernel, shape.shared_bytes));
    }
    void* arguments[] = {const_cast<void*>(params)};
    const cudaError_t error =
        cudaLaunchKernel(kernel.entry, dim3(shape.grid_x, shape.grid_y, shape.grid_z),
                         dim3(shape.threads), arguments, shape.shared_bytes, own->stream);
    const absl::Status status = CudaStatus(error, kernel.name);
    if (error == cudaErrorInvalidValue || error == cudaErrorInvalidConfiguration ||
        error == cudaErrorLaunchOutOfResources) {
      return absl::InvalidArgumentError(absl::StrCat(status.message(), ", with ", shape.threads,
                                                     " threads and ", shape.shared_bytes,
                                                     " bytes of shared memory"));
    }
    return status;
  }

  absl::Status GemmStatus() override { return gemms_.status(); }

  absl::Status Gemm(const DenseGemm& gemm, DeviceStream& stream) override {
    RETURN_IF_ERROR(CheckGemm(gemm));
    ASSIGN_OR_RETURN(auto own, Own(stream));
    if (!own->computes) {
      return absl::FailedPreconditionError("Gemm: the stream was made for copies");
    }
    RETURN_IF_ERROR(gemms_.status());
    if (gemm.rows == 0) return absl::OkStatus();
    Use();
    const absl::Status status = (*gemms_)->Run(gemm, own->workspace, own->stream);
    if (!status.ok() && CaptureOf(*own) == nullptr) HearWhy(own->stream);
    return status;
  }

  absl::Status Record(DeviceEvent& event, DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    ASSIGN_OR_RETURN(auto own_event, Own(event));
    CudaEvent& e = *own_event;
    Use();
    const auto capture = CaptureOf(*own);
    if (capture != nullptr && e.interprocess) {
      return Spoil(*capture, "Record: an interprocess event in a capture");
    }
    absl::Status status = CudaStatus(cudaEventRecord(e.event, own->stream), "cudaEventRecord");
    RETURN_IF_ERROR(status);
    e.recorded = true;
    e.capture = capture;
    return status;
  }

  absl::Status WaitFor(DeviceEvent& event, DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    ASSIGN_OR_RETURN(auto own_event, Own(event));
    const CudaEvent& e = *own_event;
    CudaStream& s = *own;
    Use();
    const auto capture = CaptureOf(s);
    if (e.capture != nullptr) {  // the latest recording was in a capture
      if (e.capture->ended() || (capture != nullptr && capture != e.capture)) {
        if (capture != nullptr)
          Spoil(*capture, "WaitFor: an event of another capture").IgnoreError();
        return Spoil(*e.capture, "WaitFor: the event was last recorded in another capture");
      }
      s.capture = e.capture;
    } else if (!e.recorded && !e.interprocess) {
      return absl::OkStatus();
    } else if (capture != nullptr) {
      return Spoil(*capture, "WaitFor: the event was recorded outside of the capture");
    }
    return CudaStatus(cudaStreamWaitEvent(s.stream, e.event, cudaEventWaitDefault),
                      "cudaStreamWaitEvent");
  }

  absl::StatusOr<bool> Query(DeviceEvent& event) override {
    ASSIGN_OR_RETURN(auto own, Own(event));
    RETURN_IF_ERROR(CheckRecorded(*own, "Query"));
    Use();
    const cudaError_t error = cudaEventQuery(own->event);
    if (error == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    if (error != cudaSuccess) return CudaStatus(error, "cudaEventQuery");
    return true;
  }

  absl::Status Synchronize(DeviceEvent& event) override {
    ASSIGN_OR_RETURN(auto own, Own(event));
    RETURN_IF_ERROR(CheckRecorded(*own, "Synchronize"));
    Use();
    return CudaStatus(cudaEventSynchronize(own->event), "cudaEventSynchronize");
  }

  absl::Status Synchronize(DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    if (const auto capture = CaptureOf(*own); capture != nullptr) {
      return Spoil(*capture, "Synchronize: the stream is being captured");
    }
    RETURN_IF_ERROR(RefuseInCapture("Synchronize"));
    Use();
    return CudaStatus(cudaStreamSynchronize(own->stream), "cudaStreamSynchronize");
  }

  absl::Status BeginCapture(DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    if (const auto capture = CaptureOf(*own); capture != nullptr) {
      return Spoil(*capture, "BeginCapture: the stream is being captured already");
    }
    RETURN_IF_ERROR(RefuseInCapture("BeginCapture"));
    Use();
    RETURN_IF_ERROR(BeginGemms());
    // The rules of this capture hold only for this thread. Other threads may poll events or free
    // memory during the capture: such calls must neither fail nor make the capture fail.
    RETURN_IF_ERROR(
        CudaStatus(cudaStreamBeginCapture(own->stream, cudaStreamCaptureModeThreadLocal),
                   "cudaStreamBeginCapture"));
    own->capture = std::make_shared<DeviceCapture>(own);
    MutexLock lock(&mutex_);
    captures_.Add(own->capture);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture(DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    const auto capture = CaptureOf(*own);
    if (capture == nullptr) {
      return absl::FailedPreconditionError("EndCapture: the stream is not being captured");
    }
    if (!capture->IsOrigin(own)) {
      return Spoil(*capture, "EndCapture: the capture was begun on another stream");
    }
    if (!capture->IsOwn()) return Spoil(*capture, "EndCapture: another thread began the capture");
    Use();
    cudaGraph_t graph = nullptr;
    const absl::Status ended =
        CudaStatus(cudaStreamEndCapture(own->stream, &graph), "cudaStreamEndCapture");
    absl::Status status = End(*capture);
    if (status.ok()) status = ended;
    cudaGraphExec_t runnable = nullptr;
    if (status.ok()) {
      status = CudaStatus(cudaGraphInstantiate(&runnable, graph, 0), "cudaGraphInstantiate");
    }
    if (graph != nullptr) cudaGraphDestroy(graph);
    // Uploads the graph now: at its first replay there might be no memory left for it.
    if (status.ok()) {
      status = CudaStatus(cudaGraphUpload(runnable, own->stream), "cudaGraphUpload");
      if (!status.ok()) cudaGraphExecDestroy(runnable);
    }
    RETURN_IF_ERROR(status);
    return std::make_unique<CudaGraph>(this, runnable);
  }

  absl::Status Replay(DeviceGraph& graph, DeviceStream& stream) override {
    ASSIGN_OR_RETURN(auto own, Own(stream));
    auto& own_graph = static_cast<CudaGraph&>(graph);
    if (own_graph.runtime != this) return OfAnother("graph");
    if (const auto capture = CaptureOf(*own); capture != nullptr) {
      return Spoil(*capture, "Replay: the stream is being captured");
    }
    RETURN_IF_ERROR(RefuseInCapture("Replay"));
    Use();
    return CudaStatus(cudaGraphLaunch(own_graph.graph, own->stream), "cudaGraphLaunch");
  }

  absl::StatusOr<std::string> ExportMemory(const std::byte* memory) override {
    Use();
    ASSIGN_OR_RETURN(const auto handle, memory_.ExportMemory(memory));
    return SealHandle(kCudaMaker, IpcKind::kMemory, handle);
  }

  absl::StatusOr<std::string> ExportEvent(DeviceEvent& event) override {
    ASSIGN_OR_RETURN(auto own, Own(event));
    if (!own->interprocess || own->imported) {
      return absl::FailedPreconditionError(
          absl::StrCat("ExportEvent: the event ",
                       own->imported ? "was imported" : "was not made an interprocess one"));
    }
    Use();
    CudaEventHandle handle;
    const absl::Status status =
        CudaStatus(cudaIpcGetEventHandle(&handle.event, own->event), "cudaIpcGetEventHandle");
    if (!status.ok()) return absl::FailedPreconditionError(status.message());
    return SealHandle(kCudaMaker, IpcKind::kEvent, handle);
  }

  absl::StatusOr<std::byte*> ImportMemory(absl::string_view bytes) override {
    ASSIGN_OR_RETURN(auto handle,
                     OpenHandle<CudaMemoryHandle>(kCudaMaker, IpcKind::kMemory, bytes));
    RETURN_IF_ERROR(RefuseInCapture("ImportMemory"));
    Use();
    return memory_.ImportMemory(handle);
  }

  void CloseMemory(std::byte* memory) override {
    if (memory == nullptr || !RefuseInCapture("CloseMemory").ok()) return;
    Use();
    memory_.CloseMemory(memory);
  }

  absl::StatusOr<std::unique_ptr<DeviceEvent>> ImportEvent(absl::string_view bytes) override {
    ASSIGN_OR_RETURN(auto handle, OpenHandle<CudaEventHandle>(kCudaMaker, IpcKind::kEvent, bytes));
    Use();
    cudaEvent_t event = nullptr;
    const absl::Status status =
        CudaStatus(cudaIpcOpenEventHandle(&event, handle.event), "cudaIpcOpenEventHandle");
    if (!status.ok()) return absl::FailedPreconditionError(status.message());
    auto own = std::make_unique<CudaEvent>(this, event);
    own->interprocess = own->imported = true;
    return own;
  }

  // Makes this device the calling thread's current one. Costs one read of a thread-local variable.
  void Use() const { cudaSetDevice(device_); }

 private:
  static absl::Status OfAnother(absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("this ", what, " is of another runtime"));
  }
  absl::StatusOr<CudaStream*> Own(DeviceStream& stream) {
    auto& own = static_cast<CudaStream&>(stream);
    if (own.runtime != this) return OfAnother("stream");
    return &own;
  }
  absl::StatusOr<CudaEvent*> Own(DeviceEvent& event) {
    auto& own = static_cast<CudaEvent&>(event);
    if (own.runtime != this) return OfAnother("event");
    return &own;
  }

  // Makes cuBLASLt ready, if this machine has it.
  absl::Status BeginGemms() { return gemms_.ok() ? (*gemms_)->Begin() : absl::OkStatus(); }

  // Must be called after an error of cuBLASLt, which does not say whether CUDA itself has failed.
  // Asks CUDA; a failure of CUDA goes to the handler of OnFailure.
  static void HearWhy(cudaStream_t stream) {
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaErrorNotReady) {
      cudaGetLastError();
    } else {
      CudaStatus(error, "cudaStreamQuery").IgnoreError();
    }
  }

  // Returns the unfinished capture that the stream is part of, or null.
  static std::shared_ptr<DeviceCapture> CaptureOf(CudaStream& stream) {
    if (stream.capture != nullptr && stream.capture->ended()) stream.capture = nullptr;
    return stream.capture;
  }

  absl::Status Spoil(DeviceCapture& capture, absl::string_view why) {
    MutexLock lock(&mutex_);
    return capture.Spoil(why);
  }

  absl::Status End(DeviceCapture& capture) {
    MutexLock lock(&mutex_);
    captures_.Remove(capture);
    return capture.End();
  }

  // Ends the capture without a graph.
  void Abandon(DeviceCapture& capture, CudaStream& stream) {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream.stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    End(capture).IgnoreError();
  }

  // Returns FailedPrecondition if the calling thread is capturing, and makes that capture fail.
  absl::Status RefuseInCapture(absl::string_view call) {
    MutexLock lock(&mutex_);
    return captures_.Refuse(call);
  }

  // Returns true if the calling thread is capturing.
  bool Captures() {
    MutexLock lock(&mutex_);
    return captures_.OfThisThread() != nullptr;
  }

  // Called before a query of the event or a wait for it. Returns FailedPrecondition if the event
  // was last recorded in a capture, or if the calling thread is capturing. Also makes that capture
  // fail.
  absl::Status CheckRecorded(const CudaEvent& event, absl::string_view call) {
    if (event.capture != nullptr) {
      return Spoil(*event.capture,
                   absl::StrCat(call, ": the event was last recorded in a capture"));
    }
    return RefuseInCapture(call);
  }

  // Refuses copies that captures do not allow. CUDA would accept a copy from plain host memory in a
  // graph and read that memory at each replay. A copy to plain host memory, or from host to host,
  // waits, and a capturing thread may not wait.
  absl::Status RefusePlain(absl::string_view call, const void* to, const void* from,
                           CudaStream& stream) {
    const auto capture = CaptureOf(stream);
    if (capture == nullptr && !Captures()) return absl::OkStatus();
    cudaMemoryType types[2];
    for (int i = 0; i < 2; ++i) {
      cudaPointerAttributes about;
      RETURN_IF_ERROR(CudaStatus(cudaPointerGetAttributes(&about, i == 0 ? to : from),
                                 "cudaPointerGetAttributes"));
      types[i] = about.type;
    }
    const auto plain = [&](int i) { return types[i] == cudaMemoryTypeUnregistered; };
    if (capture != nullptr) {
      if (!plain(0) && !plain(1)) return absl::OkStatus();
      return Spoil(*capture, absl::StrCat(call, ": plain host memory in a capture"));
    }
    const bool within_host = types[0] != cudaMemoryTypeDevice && types[1] != cudaMemoryTypeDevice;
    return plain(0) || within_host ? RefuseInCapture(call) : absl::OkStatus();
  }

  // Allows the kernel more dynamic shared memory than it gets by default. Calls CUDA only if
  // `bytes` is more than in every earlier call for this kernel. Also reserves as much of a
  // multiprocessor's memory as possible for shared memory: otherwise fewer blocks run at the same
  // time.
  absl::Status AllowShared(const Kernel& kernel, size_t bytes) {
    MutexLock lock(&mutex_);
    if (!shared_bytes_.contains(kernel.entry)) {
      RETURN_IF_ERROR(CudaStatus(
          cudaFuncSetAttribute(kernel.entry, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared),
          "cudaFuncSetAttribute"));
      shared_bytes_[kernel.entry] = kSharedBytesWithoutAsking;
    }
    size_t& allowed = shared_bytes_[kernel.entry];
    if (bytes <= allowed) return absl::OkStatus();
    absl::Status status =
        CudaStatus(cudaFuncSetAttribute(kernel.entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(bytes)),
                   "cudaFuncSetAttribute");
    if (status.ok()) allowed = bytes;
    return status;
  }

  const int device_;
  const DeviceInfo info_;
  const absl::StatusOr<std::unique_ptr<CudaGemms>> gemms_;  // an error if there is no cuBLASLt
  CudaMemory memory_;
  Mutex mutex_;
  std::map<const void*, size_t> shared_bytes_ ABSL_GUARDED_BY(mutex_);  // key: kernel
  OpenCaptures captures_ ABSL_GUARDED_BY(mutex_);
};

CudaStream::~CudaStream() { runtime->Destroy(*this); }

CudaEvent::~CudaEvent() {
  runtime->Use();
  cudaEventDestroy(event);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceRuntime>> CreateCudaRuntime(int device) {
  ASSIGN_OR_RETURN(const auto properties, FindCudaDevice(device));
  return std::make_unique<CudaRuntime>(device, properties, CudaGemms::Create());
}

}  // namespace baton
