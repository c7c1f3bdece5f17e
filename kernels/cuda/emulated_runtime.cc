#include "kernels/cuda/emulated_runtime.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "kernels/cuda/device_checks.h"
#include "kernels/cuda/emulated_address_space.h"
#include "kernels/cuda/emulated_copy.h"
#include "kernels/cuda/emulated_event.h"
#include "kernels/cuda/emulated_graph.h"
#include "kernels/cuda/emulated_handle.h"
#include "kernels/cuda/emulated_memory.h"
#include "kernels/cuda/emulated_product.h"
#include "kernels/cuda/emulated_recordings.h"
#include "kernels/cuda/emulated_streams.h"
#include "kernels/cuda/simt/run_grid.h"

namespace baton {
namespace {

class EmulatedRuntime;

struct EmulatedStream : DeviceStream {
  EmulatedStream(EmulatedRuntime* runtime, StreamKind kind, std::shared_ptr<EmulatedQueue> queue)
      : runtime(runtime), kind(kind), queue(std::move(queue)) {}
  ~EmulatedStream() override;
  StreamPoint End() const { return {queue, queue->end()}; }

  EmulatedRuntime* const runtime;
  const StreamKind kind;
  const std::shared_ptr<EmulatedQueue> queue;
  std::shared_ptr<EmulatedCapture> capture;  // null, or ended: work runs
};

struct EmulatedEvent : DeviceEvent {
  explicit EmulatedEvent(EmulatedRuntime* runtime) : runtime(runtime) {}

  EmulatedRuntime* const runtime;
  // What was recorded last: in a capture, or a point of a stream.
  std::shared_ptr<EmulatedCapture> capture;
  EmulatedCapture::Tails tails;
  StreamPoint point;
  // Interprocess: in place of all these.
  std::shared_ptr<SharedEvent> shared;
  bool imported = false;
};

struct EmulatedGraph : DeviceGraph {
  EmulatedGraph(EmulatedRuntime* runtime, std::shared_ptr<const GraphNodes> nodes)
      : runtime(runtime), nodes(std::move(nodes)) {}

  EmulatedRuntime* const runtime;
  const std::shared_ptr<const GraphNodes> nodes;
  StreamPoint latest;  // replay
};

class EmulatedRuntime : public DeviceRuntime {
 public:
  EmulatedRuntime(const EmulatedOptions& options, std::unique_ptr<EmulatedMemory> memory)
      : options_(options),
        space_(std::move(memory), options.check),
        scheduler_(options.seed, &mutex_, &space_.device()),
        recordings_(&scheduler_, &mutex_) {
    info_.name = absl::StrCat("emulated device ", options.device);
    info_.id = absl::StrCat("EMULATED-", options.device);
    info_.multiprocessors = 4;
    info_.major = 8;
    info_.total_bytes = options.memory_bytes;
    info_.shared_bytes = 163 << 10;  // as sm_80 has it
  }

  const DeviceInfo& info() const override { return info_; }

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
    if (absl::Status status = CheckAllocation(bytes); !status.ok()) return status;
    if (absl::Status status = RefuseInCapture("Allocate"); !status.ok()) return status;
    if (options_.on_allocate) options_.on_allocate("Allocate", bytes);
    return space_.Allocate(bytes, interprocess);
  }

  void Free(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("Free").ok()) return;
    scheduler_.RunAll().IgnoreError();  // told by whoever waits next
    space_.Free(memory);
  }

  absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) override {
    MutexLock lock(&mutex_);
    if (absl::Status status = CheckAllocation(bytes); !status.ok()) return status;
    if (absl::Status status = RefuseInCapture("AllocatePinned"); !status.ok()) return status;
    if (options_.on_allocate) options_.on_allocate("AllocatePinned", bytes);
    return space_.AllocatePinned(bytes);
  }

  void FreePinned(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("FreePinned").ok()) return;
    scheduler_.RunAll().IgnoreError();
    space_.FreePinned(memory);
  }

  absl::Status PinHost(std::byte* memory, size_t bytes) override {
    if (absl::Status status = CheckPin(memory, bytes); !status.ok()) return status;
    MutexLock lock(&mutex_);
    if (absl::Status status = RefuseInCapture("PinHost"); !status.ok()) return status;
    return space_.PinHost(memory, bytes);
  }

  void UnpinHost(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("UnpinHost").ok()) return;
    scheduler_.RunAll().IgnoreError();
    space_.UnpinHost(memory);
  }

  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream(StreamKind kind) override {
    MutexLock lock(&mutex_);
    if (absl::Status status = RefuseInCapture("CreateStream"); !status.ok()) return status;
    return std::make_unique<EmulatedStream>(this, kind, scheduler_.CreateQueue());
  }

  void Destroy(EmulatedStream& stream) {
    MutexLock lock(&mutex_);
    if (const auto capture = CaptureOf(stream); capture != nullptr) {
      capture->Spoil("a stream of the capture was destroyed").IgnoreError();
      if (capture->IsOrigin(stream.queue.get())) End(*capture).status().IgnoreError();
    }
    scheduler_.RunUntil(stream.End()).IgnoreError();
    scheduler_.DestroyQueue(stream.queue);
  }

  absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent(bool interprocess) override {
    auto event = std::make_unique<EmulatedEvent>(this);
    if (interprocess) {
      auto shared = SharedEvent::Create();
      if (!shared.ok()) return shared.status();
      event->shared = *std::move(shared);
    }
    return event;
  }

  absl::Status Copy(void* to, const void* from, size_t bytes, DeviceStream& stream) override {
    if (absl::Status status = CheckCopy(to, from, bytes); !status.ok()) return status;
    return CopyChecked("Copy", to, bytes, from, {bytes, bytes, 1}, stream);
  }

  absl::Status CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                        size_t row_bytes, size_t rows, DeviceStream& stream) override {
    absl::Status status = CheckCopyRows(to, to_pitch, from, from_pitch, row_bytes, rows);
    if (!status.ok()) return status;
    return CopyChecked("CopyRows", to, to_pitch, from, {from_pitch, row_bytes, rows}, stream);
  }

  absl::Status Fill(void* to, uint8_t value, size_t bytes, DeviceStream& stream) override {
    if (absl::Status status = CheckFill(to, bytes); !status.ok()) return status;
    auto own = Own(stream);
    if (!own.ok() || bytes == 0) return own.status();
    MutexLock lock(&mutex_);
    if (absl::Status status = space_.CheckDevice("Fill: ", to, bytes); !status.ok()) return status;
    return Put(**own, [this, to, value, bytes] {
      // A graph may outlive its memory.
      absl::Status status = space_.CheckDevice("Fill: ", to, bytes);
      if (!status.ok()) return status;
      memset(to, value, bytes);
      space_.MarkWritten(to, bytes);
      return absl::OkStatus();
    });
  }

  using DeviceRuntime::Launch;
  absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const void* params,
                      DeviceStream& stream) override {
    if (absl::Status status = CheckLaunch(kernel, shape, params, info_); !status.ok()) {
      return status;
    }
    const int threads = static_cast<const simt::SimtEntry*>(kernel.entry)->max_threads;
    if (shape.threads > threads) {
      return absl::InvalidArgumentError(absl::StrCat(kernel.name, ": blocks of ", shape.threads,
                                                     " threads; it was made for ", threads));
    }
    auto own = Own(stream);
    if (!own.ok()) return own.status();
    auto copy = std::make_shared<std::vector<std::max_align_t>>(
        kernel.params_bytes / sizeof(std::max_align_t) + 1);
    memcpy(copy->data(), params, kernel.params_bytes);
    MutexLock lock(&mutex_);
    return Put(**own, [this, kernel, shape, copy] { return Run(kernel, shape, copy->data()); });
  }

  absl::Status Product(const DenseProduct& product, DeviceStream& stream) override {
    if (absl::Status status = CheckProduct(product); !status.ok()) return status;
    auto own = Own(stream);
    if (!own.ok()) return own.status();
    if ((*own)->kind != StreamKind::kCompute) {
      return absl::FailedPreconditionError("Product: the stream was made for copies");
    }
    if (product.rows == 0) return absl::OkStatus();
    MutexLock lock(&mutex_);
    auto work = EmulatedProductWork(&space_, product);
    if (!work.ok()) return work.status();
    return Put(**own, *std::move(work));
  }

  absl::Status Record(DeviceEvent& event, DeviceStream& stream) override {
    auto own = Own(stream);
    if (!own.ok()) return own.status();
    auto own_event = Own(event);
    if (!own_event.ok()) return own_event.status();
    EmulatedEvent& e = **own_event;
    MutexLock lock(&mutex_);
    const auto capture = CaptureOf(**own);
    if (e.shared != nullptr) {
      if (capture != nullptr) return capture->Spoil("Record: an interprocess event in a capture");
      return recordings_.Record(e.shared, (*own)->queue);
    }
    e.capture = capture;
    if (capture != nullptr) {
      e.tails = capture->TailsOf((*own)->queue.get());
    } else {
      e.point = (*own)->End();
    }
    return scheduler_.failure();
  }

  absl::Status WaitFor(DeviceEvent& event, DeviceStream& stream) override {
    auto own = Own(stream);
    if (!own.ok()) return own.status();
    auto own_event = Own(event);
    if (!own_event.ok()) return own_event.status();
    EmulatedEvent& e = **own_event;
    EmulatedStream& s = **own;
    MutexLock lock(&mutex_);
    if (!scheduler_.failure().ok()) return scheduler_.failure();
    const auto capture = CaptureOf(s);
    if (e.capture != nullptr) {  // was last recorded in one
      if (e.capture->ended() || (capture != nullptr && capture != e.capture)) {
        if (capture != nullptr)
          capture->Spoil("WaitFor: an event of another capture").IgnoreError();
        return e.capture->Spoil("WaitFor: the event was last recorded in another capture");
      }
      s.capture = e.capture;
      e.capture->WaitFor(s.queue.get(), e.tails);
      return absl::OkStatus();
    }
    const SharedPoint shared = LatestOf(e);
    if (shared.recording == 0 && e.point.queue == nullptr) {
      return absl::OkStatus();  // never recorded
    }
    if (capture != nullptr) {
      return capture->Spoil("WaitFor: the event was recorded outside of the capture");
    }
    const StreamPoint point = PlaceOf(e, shared);
    if (point.queue == nullptr && e.shared != nullptr) {
      s.queue->Push(shared);
    } else if (!point.Reached()) {
      s.queue->Push(point);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Query(DeviceEvent& event) override {
    auto own = Own(event);
    if (!own.ok()) return own.status();
    const EmulatedEvent& e = **own;
    MutexLock lock(&mutex_);
    if (absl::Status status = CheckRecorded(e, "Query"); !status.ok()) return status;
    const SharedPoint shared = LatestOf(e);
    const StreamPoint point = PlaceOf(e, shared);
    if (point.queue == nullptr && e.shared != nullptr) {
      e.shared->Want(shared.recording);
      return e.shared->Reached(shared.recording);
    }
    bool reached = point.Reached();
    if (!reached && scheduler_.Random() % 2 == 0) {
      scheduler_.RunSome();  // which shows when it is asked again
    } else if (!reached) {
      scheduler_.RunTowards(point).IgnoreError();
      reached = point.Reached();
    }
    if (!scheduler_.failure().ok()) return scheduler_.failure();
    return reached;
  }

  absl::Status Synchronize(DeviceEvent& event) override {
    auto own = Own(event);
    if (!own.ok()) return own.status();
    const EmulatedEvent& e = **own;
    MutexLock lock(&mutex_);
    if (absl::Status status = CheckRecorded(e, "Synchronize"); !status.ok()) return status;
    const SharedPoint shared = LatestOf(e);
    const StreamPoint point = PlaceOf(e, shared);
    if (point.queue != nullptr || e.shared == nullptr) return scheduler_.RunUntil(point);
    return scheduler_.Await(shared);
  }

  absl::Status Synchronize(DeviceStream& stream) override {
    auto own = Own(stream);
    if (!own.ok()) return own.status();
    MutexLock lock(&mutex_);
    if (const auto capture = CaptureOf(**own); capture != nullptr) {
      return capture->Spoil("Synchronize: the stream is being captured");
    }
    if (absl::Status status = RefuseInCapture("Synchronize"); !status.ok()) return status;
    return scheduler_.RunUntil((*own)->End());
  }

  absl::Status BeginCapture(DeviceStream& stream) override {
    auto own = Own(stream);
    if (!own.ok()) return own.status();
    MutexLock lock(&mutex_);
    if (!scheduler_.failure().ok()) return scheduler_.failure();
    if (absl::Status status = RefuseInCapture("BeginCapture"); !status.ok()) return status;
    if (const auto capture = CaptureOf(**own); capture != nullptr) {
      return capture->Spoil("BeginCapture: the stream is being captured already");
    }
    (*own)->capture = std::make_shared<EmulatedCapture>((*own)->queue.get());
    captures_.Add((*own)->capture);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture(DeviceStream& stream) override {
    auto own = Own(stream);
    if (!own.ok()) return own.status();
    MutexLock lock(&mutex_);
    const auto capture = CaptureOf(**own);
    if (capture == nullptr) {
      return absl::FailedPreconditionError("EndCapture: the stream is not being captured");
    }
    if (!capture->IsOrigin((*own)->queue.get())) {
      return capture->Spoil("EndCapture: the capture was begun on another stream");
    }
    if (!capture->IsOwn()) return capture->Spoil("EndCapture: another thread began the capture");
    auto nodes = End(*capture);
    if (!nodes.ok()) return nodes.status();
    return std::make_unique<EmulatedGraph>(this, *std::move(nodes));
  }

  absl::Status Replay(DeviceGraph& graph, DeviceStream& stream) override {
    auto own = Own(stream);
    if (!own.ok()) return own.status();
    auto& g = static_cast<EmulatedGraph&>(graph);
    if (g.runtime != this) return OfAnother("graph");
    MutexLock lock(&mutex_);
    if (!scheduler_.failure().ok()) return scheduler_.failure();
    if (const auto capture = CaptureOf(**own); capture != nullptr) {
      return capture->Spoil("Replay: the stream is being captured");
    }
    if (absl::Status status = RefuseInCapture("Replay"); !status.ok()) return status;
    EmulatedQueue& queue = *(*own)->queue;
    if (!g.latest.Reached()) queue.Push(g.latest);
    queue.Push(GraphReplay(g.nodes));
    g.latest = (*own)->End();
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ExportMemory(const std::byte* memory) override {
    MutexLock lock(&mutex_);
    auto handle = space_.ExportMemory(memory);
    if (!handle.ok()) return handle.status();
    handle->device = options_.device;
    return SealHandle(kEmulatedMaker, IpcKind::kMemory, *handle);
  }

  absl::StatusOr<std::string> ExportEvent(DeviceEvent& event) override {
    auto own = Own(event);
    if (!own.ok()) return own.status();
    const EmulatedEvent& e = **own;
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
    auto handle = OpenHandle<EmulatedHandle>(kEmulatedMaker, IpcKind::kMemory, bytes);
    if (!handle.ok()) return handle.status();
    if (handle->device != options_.device && !options_.peer_access) {
      return absl::FailedPreconditionError(absl::StrCat(
          "ImportMemory: ", info_.name, " can't reach memory of device ", handle->device));
    }
    auto file = OpenFileOf(*handle);
    if (!file.ok()) return file.status();
    MutexLock lock(&mutex_);
    auto memory = RefuseInCapture("ImportMemory").ok()
                      ? space_.ImportMemory(*file, *handle)
                      : absl::FailedPreconditionError("ImportMemory: the thread is capturing");
    close(*file);
    return memory;
  }

  void CloseMemory(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("CloseMemory").ok()) return;
    space_.CloseMemory(memory);
  }

  absl::StatusOr<std::unique_ptr<DeviceEvent>> ImportEvent(absl::string_view bytes) override {
    auto handle = OpenHandle<EmulatedHandle>(kEmulatedMaker, IpcKind::kEvent, bytes);
    if (!handle.ok()) return handle.status();
    auto file = OpenFileOf(*handle);
    if (!file.ok()) return file.status();
    auto shared = SharedEvent::Open(*file, handle->inode);
    close(*file);
    if (!shared.ok()) return shared.status();
    auto event = std::make_unique<EmulatedEvent>(this);
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
    if (own.runtime != this) return OfAnother("stream");
    return &own;
  }
  absl::StatusOr<EmulatedEvent*> Own(DeviceEvent& event) {
    auto& own = static_cast<EmulatedEvent&>(event);
    if (own.runtime != this) return OfAnother("event");
    return &own;
  }

  // What an interprocess event was recorded for last, by anybody.
  static SharedPoint LatestOf(const EmulatedEvent& event) {
    return {event.shared, event.shared != nullptr ? event.shared->recorded() : 0};
  }
  // Where in our work it stands; nowhere, where that recording has ended or is another process's.
  StreamPoint PlaceOf(const EmulatedEvent& event, const SharedPoint& shared) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (event.shared == nullptr) return event.point;
    return recordings_.Find(shared).value_or(StreamPoint{});
  }

  // Puts work on the stream, or into its capture.
  absl::Status Put(EmulatedStream& stream, EmulatedWork work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!scheduler_.failure().ok()) return scheduler_.failure();
    if (const auto capture = CaptureOf(stream); capture != nullptr) {
      capture->Add(stream.queue.get(), std::move(work));
    } else {
      stream.queue->Push(std::move(work));
    }
    return absl::OkStatus();
  }

  absl::Status CopyChecked(absl::string_view call, void* to, size_t to_pitch, const void* from,
                           const EmulatedCopy::Rows& rows, DeviceStream& stream) {
    auto own = Own(stream);
    if (!own.ok() || rows.bytes == 0 || rows.count == 0) return own.status();
    EmulatedStream& s = **own;
    MutexLock lock(&mutex_);
    const auto copy = EmulatedCopy::Create(&space_, call, to, to_pitch, from, rows);
    if (!copy.ok()) return copy.status();
    const auto capture = CaptureOf(s);
    if (capture != nullptr && copy->touches_plain()) {
      return capture->Spoil(absl::StrCat(call, ": plain host memory in a capture"));
    }
    const bool waits = capture == nullptr && copy->waits();
    if (waits) {
      if (absl::Status status = RefuseInCapture(call); !status.ok()) return status;
    }
    absl::Status status = Put(s, copy->Work());
    if (!status.ok() || !waits) return status;
    return scheduler_.RunUntil(s.End());
  }

  absl::Status Run(const Kernel& kernel, const LaunchShape& shape, const void* params)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    simt::SimtOptions options;
    options.seed = scheduler_.Random();
    options.max_shared_bytes = info_.shared_bytes;
    options.memory = &space_.map();
    options.check = options_.check;
    options.mutation = options_.mutation;
    options.mutations_seen = options_.mutations_seen;
    absl::Status status = simt::RunGrid(kernel, shape, params, options);
    if (!status.ok()) return status;
    status = space_.device().CheckMargins();
    if (status.ok()) return status;
    return absl::InternalError(absl::StrCat(kernel.name, ": ", status.message()));
  }

  // That is being made, of the stream's work; or null.
  static std::shared_ptr<EmulatedCapture> CaptureOf(EmulatedStream& stream) {
    if (stream.capture != nullptr && stream.capture->ended()) stream.capture = nullptr;
    return stream.capture;
  }

  absl::StatusOr<std::shared_ptr<const GraphNodes>> End(EmulatedCapture& capture)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    captures_.Remove(capture);
    return capture.Finish();
  }

  // FailedPrecondition when the calling thread is capturing, which is then spoilt.
  absl::Status RefuseInCapture(absl::string_view call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return captures_.Refuse(call);
  }

  // FailedPrecondition when nobody may now ask for the event.
  absl::Status CheckRecorded(const EmulatedEvent& event, absl::string_view call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (event.capture != nullptr) {
      return event.capture->Spoil(absl::StrCat(call, ": the event was last recorded in a capture"));
    }
    return RefuseInCapture(call);
  }

  const EmulatedOptions options_;
  DeviceInfo info_;
  Mutex mutex_;
  EmulatedAddressSpace space_ ABSL_GUARDED_BY(mutex_);
  StreamScheduler scheduler_ ABSL_GUARDED_BY(mutex_);
  OpenRecordings recordings_ ABSL_GUARDED_BY(mutex_);  // ends before what it serves
  OpenCaptures captures_ ABSL_GUARDED_BY(mutex_);
};

EmulatedStream::~EmulatedStream() { runtime->Destroy(*this); }

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceRuntime>> CreateEmulatedRuntime(
    const EmulatedOptions& options) {
  auto memory = EmulatedMemory::Create(options.memory_bytes);
  if (!memory.ok()) return memory.status();
  return std::make_unique<EmulatedRuntime>(options, *std::move(memory));
}

}  // namespace baton
