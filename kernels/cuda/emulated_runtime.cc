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
#include "kernels/cuda/emulated_event.h"
#include "kernels/cuda/emulated_graph.h"
#include "kernels/cuda/emulated_handle.h"
#include "kernels/cuda/emulated_memory.h"
#include "kernels/cuda/emulated_product.h"
#include "kernels/cuda/emulated_recordings.h"
#include "kernels/cuda/emulated_streams.h"
#include "kernels/cuda/pinned_memory.h"
#include "kernels/cuda/simt/memory_map.h"
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

// Runs of bytes, `pitch` apart.
struct Rows {
  size_t pitch, bytes, count;
  size_t extent() const { return (count - 1) * pitch + bytes; }
};

void CopyBytes(void* to, size_t to_pitch, const void* from, const Rows& rows) {
  for (size_t i = 0; i < rows.count; ++i) {
    memmove(static_cast<std::byte*>(to) + i * to_pitch,
            static_cast<const std::byte*>(from) + i * rows.pitch, rows.bytes);
  }
}

class EmulatedRuntime : public DeviceRuntime {
 public:
  EmulatedRuntime(const EmulatedOptions& options, std::unique_ptr<EmulatedMemory> memory)
      : options_(options),
        memory_(std::move(memory)),
        scheduler_(options.seed, &mutex_, memory_.get()),
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
    return memory_->free_bytes();
  }

  absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess) override {
    MutexLock lock(&mutex_);
    if (absl::Status status = CheckAllocation(bytes); !status.ok()) return status;
    if (absl::Status status = RefuseInCapture("Allocate"); !status.ok()) return status;
    auto memory = memory_->Allocate(bytes, interprocess);
    // What another process writes there nobody sees here.
    if (memory.ok()) kernel_memory_.Add(*memory, bytes, !options_.check || interprocess);
    return memory;
  }

  void Free(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("Free").ok()) return;
    scheduler_.RunAll().IgnoreError();  // told by whoever waits next
    kernel_memory_.Remove(memory);
    memory_->Free(memory);
  }

  absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) override {
    MutexLock lock(&mutex_);
    if (absl::Status status = CheckAllocation(bytes); !status.ok()) return status;
    if (absl::Status status = RefuseInCapture("AllocatePinned"); !status.ok()) return status;
    auto memory = pinned_.Allocate(bytes);
    if (memory.ok()) kernel_memory_.Add(*memory, bytes, /*written=*/true);
    return memory;
  }

  void FreePinned(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("FreePinned").ok()) return;
    scheduler_.RunAll().IgnoreError();
    kernel_memory_.Remove(memory);
    pinned_.Free(memory);
  }

  absl::Status PinHost(std::byte* memory, size_t bytes) override {
    if (absl::Status status = CheckPin(memory, bytes); !status.ok()) return status;
    MutexLock lock(&mutex_);
    if (absl::Status status = RefuseInCapture("PinHost"); !status.ok()) return status;
    if (memory_->Holds(memory)) {
      return absl::FailedPreconditionError("PinHost: this is device memory");
    }
    absl::Status status = pinned_.Pin(memory, bytes);
    if (status.ok()) kernel_memory_.Add(memory, bytes, /*written=*/true);
    return status;
  }

  void UnpinHost(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("UnpinHost").ok()) return;
    scheduler_.RunAll().IgnoreError();
    kernel_memory_.Remove(memory);
    pinned_.Unpin(memory);
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
    if (absl::Status status = CheckDevice("Fill: ", to, bytes); !status.ok()) return status;
    return Put(**own, [this, to, value, bytes] {
      absl::Status status = CheckDevice("Fill: ", to, bytes);  // a graph may outlive its memory
      if (!status.ok()) return status;
      memset(to, value, bytes);
      MarkWritten(to, bytes);
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
    const DenseProduct& p = product;
    const size_t out_bytes = DTypeBytes(p.out_type);
    const size_t in_extent = ((p.rows - 1) * p.in_stride + p.k) * sizeof(uint16_t);
    const size_t out_extent = ((p.rows - 1) * p.out_stride + p.n) * out_bytes;
    const size_t weight_extent = size_t{sizeof(uint16_t)} * p.n * p.k;
    MutexLock lock(&mutex_);
    const auto check = [this, p, in_extent, weight_extent, out_extent] {
      absl::Status status = CheckDevice("Product: in: ", p.in, in_extent);
      if (status.ok()) status = CheckDevice("Product: weight: ", p.weight, weight_extent);
      if (status.ok()) status = CheckDevice("Product: out: ", p.out, out_extent);
      return status;
    };
    if (absl::Status status = check(); !status.ok()) return status;
    return Put(**own, [this, p, out_bytes, weight_extent, check] {
      if (absl::Status status = check(); !status.ok()) return status;
      RunEmulatedProduct(p);
      if (!options_.check) return absl::OkStatus();
      if (!kernel_memory_.Written(p.weight, weight_extent)) {
        return absl::InternalError("Product: some of weight has been written by nobody");
      }
      // A row of what nobody has written may be nobody's, too; whoever reads it is told.
      for (int row = 0; row < p.rows; ++row) {
        const auto* const in = static_cast<const std::byte*>(p.in) + row * p.in_stride * 2;
        auto* const out = static_cast<std::byte*>(p.out) + row * p.out_stride * out_bytes;
        const size_t bytes = p.n * out_bytes;
        if (kernel_memory_.Written(in, size_t{2} * p.k) &&
            (!p.accumulate || kernel_memory_.Written(out, bytes))) {
          kernel_memory_.MarkWritten(out, bytes);
        } else {
          kernel_memory_.MarkUnwritten(out, bytes);
        }
      }
      return absl::OkStatus();
    });
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
    const EmulatedMemory::Piece* const piece = memory_->Own(memory);
    if (piece == nullptr) {
      return absl::InvalidArgumentError("ExportMemory: this is not what Allocate gave");
    }
    if (!piece->interprocess) {
      return absl::FailedPreconditionError(
          absl::StrCat("ExportMemory: these ", piece->bytes,
                       " bytes were not allocated as interprocess memory"));
    }
    EmulatedHandle handle = memory_->Export(memory);
    handle.device = options_.device;
    return SealHandle(kEmulatedMaker, IpcKind::kMemory, handle);
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
                      ? memory_->Map(*file, *handle)
                      : absl::FailedPreconditionError("ImportMemory: the thread is capturing");
    close(*file);
    if (memory.ok() && kernel_memory_.Find(*memory) == nullptr) {
      kernel_memory_.Add(*memory, handle->bytes, /*written=*/true);
    }
    return memory;
  }

  void CloseMemory(std::byte* memory) override {
    MutexLock lock(&mutex_);
    if (memory == nullptr || !RefuseInCapture("CloseMemory").ok()) return;
    memory_->Unmap(memory);
    if (!memory_->Holds(memory)) kernel_memory_.Remove(memory);
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
  // Where the bytes of a copy are.
  enum class Place { kDevice, kPinned, kPlain };

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

  absl::StatusOr<Place> Find(const void* at, size_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (memory_->Holds(at)) {
      if (absl::Status status = memory_->Check(at, bytes); !status.ok()) return status;
      return Place::kDevice;
    }
    return pinned_.Holds(at, bytes) ? Place::kPinned : Place::kPlain;
  }

  absl::Status CheckDevice(absl::string_view what, const void* at, size_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::Status status = memory_->Check(at, bytes);
    if (status.ok()) return status;
    return absl::InvalidArgumentError(absl::StrCat(what, status.message()));
  }

  void MarkWritten(const void* at, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (options_.check) kernel_memory_.MarkWritten(at, bytes);
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
                           Rows rows, DeviceStream& stream) {
    auto own = Own(stream);
    if (!own.ok() || rows.bytes == 0 || rows.count == 0) return own.status();
    EmulatedStream& s = **own;
    MutexLock lock(&mutex_);
    const auto to_place = Find(to, (rows.count - 1) * to_pitch + rows.bytes);
    const auto from_place = Find(from, rows.extent());
    for (const auto& [place, word] : {std::pair(&to_place, "to"), {&from_place, "from"}}) {
      if (place->ok()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(call, " ", word, ": ", place->status().message()));
    }
    const auto capture = CaptureOf(s);
    if (capture != nullptr && (*to_place == Place::kPlain || *from_place == Place::kPlain)) {
      return capture->Spoil(absl::StrCat(call, ": plain host memory in a capture"));
    }
    const bool waits =
        capture == nullptr && (*to_place == Place::kPlain ||
                               (*to_place == Place::kPinned && *from_place != Place::kDevice));
    if (waits) {
      if (absl::Status status = RefuseInCapture(call); !status.ok()) return status;
    }
    std::shared_ptr<std::vector<std::byte>> staged;
    if (*from_place == Place::kPlain && *to_place == Place::kDevice) {
      staged = std::make_shared<std::vector<std::byte>>(rows.bytes * rows.count);
      CopyBytes(staged->data(), rows.bytes, from, rows);
      from = staged->data();
      rows.pitch = rows.bytes;
    }
    const bool to_device = *to_place == Place::kDevice, from_device = *from_place == Place::kDevice;
    absl::Status status = Put(s, [this, to, to_pitch, from, rows, staged, to_device, from_device] {
      absl::Status status;
      const size_t to_extent = (rows.count - 1) * to_pitch + rows.bytes;
      if (to_device) status = CheckDevice("Copy: to: ", to, to_extent);
      if (status.ok() && from_device) status = CheckDevice("Copy: from: ", from, rows.extent());
      if (!status.ok()) return status;
      CopyBytes(to, to_pitch, from, rows);
      for (size_t i = 0; options_.check && i < rows.count; ++i) {
        kernel_memory_.CopyWritten(static_cast<std::byte*>(to) + i * to_pitch,
                                   static_cast<const std::byte*>(from) + i * rows.pitch,
                                   rows.bytes);
      }
      return absl::OkStatus();
    });
    if (!status.ok() || !waits) return status;
    return scheduler_.RunUntil(s.End());
  }

  absl::Status Run(const Kernel& kernel, const LaunchShape& shape, const void* params)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    simt::SimtOptions options;
    options.seed = scheduler_.Random();
    options.max_shared_bytes = info_.shared_bytes;
    options.memory = &kernel_memory_;
    options.check = options_.check;
    options.mutation = options_.mutation;
    options.mutations_seen = options_.mutations_seen;
    absl::Status status = simt::RunGrid(kernel, shape, params, options);
    if (!status.ok()) return status;
    status = memory_->CheckMargins();
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
  const std::unique_ptr<EmulatedMemory> memory_ ABSL_PT_GUARDED_BY(mutex_);
  PinnedMemory pinned_ ABSL_GUARDED_BY(mutex_);
  // All of it that a kernel may touch.
  simt::MemoryMap kernel_memory_ ABSL_GUARDED_BY(mutex_);
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
