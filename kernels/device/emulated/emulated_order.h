#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "kernels/device/emulated/emulated_event.h"
#include "kernels/device/emulated/emulated_graph.h"
#include "kernels/device/emulated/emulated_memory.h"
#include "kernels/device/emulated/emulated_recordings.h"
#include "kernels/device/emulated/emulated_streams.h"
#include "kernels/device/runtime/device_capture.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

class EmulatedOrder;

struct EmulatedStream : DeviceStream {
  EmulatedStream(EmulatedOrder* order, StreamKind kind, std::shared_ptr<EmulatedQueue> queue)
      : order(order), kind(kind), queue(std::move(queue)) {}
  ~EmulatedStream() override;  // locks the mutex
  StreamPoint End() const { return {queue, queue->end()}; }

  EmulatedOrder* const order;
  const StreamKind kind;
  const std::shared_ptr<EmulatedQueue> queue;
  std::shared_ptr<EmulatedCapture> capture;  // null or ended: work runs instead of being captured
};

struct EmulatedEvent : DeviceEvent {
  explicit EmulatedEvent(const EmulatedOrder* order) : order(order) {}

  const EmulatedOrder* const order;
  // Latest recording of an event that is not interprocess. A captured recording is in `capture` and
  // `tails`. For any other recording, `capture` is null, and `point` is a point in a stream's work.
  std::shared_ptr<EmulatedCapture> capture;
  EmulatedCapture::Tails tails;
  StreamPoint point;
  // Set only for an interprocess event, which does not use `capture`, `tails` and `point`.
  std::shared_ptr<SharedEvent> shared;
  bool imported = false;
};

struct EmulatedGraph : DeviceGraph {
  EmulatedGraph(const EmulatedOrder* order, std::shared_ptr<const GraphNodes> nodes)
      : order(order), nodes(std::move(nodes)) {}

  const EmulatedOrder* const order;
  const std::shared_ptr<const GraphNodes> nodes;
  StreamPoint latest;  // end of the latest replay
};

// Decides which work of an emulated device waits for which: it connects streams, events, captures
// and graphs. Each function does what DeviceRuntime's function of the same name does, for objects
// that belong to this order. The caller of a function must hold `mutex`; the function may release
// the mutex for a time, as StreamScheduler says.
class EmulatedOrder {
 public:
  // `mutex` and `memory` must outlive this object. The caller must not hold the mutex when it
  // destroys this object.
  EmulatedOrder(uint64_t seed, Mutex* mutex, EmulatedMemory* memory)
      : mutex_(mutex), scheduler_(seed, mutex, memory), recordings_(&scheduler_, mutex) {}

  std::unique_ptr<EmulatedStream> CreateStream(StreamKind kind);
  // Adds work to the stream or, if the stream is part of a capture, to the capture.
  absl::Status Put(EmulatedStream& stream, EmulatedWork work);

  absl::Status Record(EmulatedEvent& event, EmulatedStream& stream);
  absl::Status WaitFor(EmulatedEvent& event, EmulatedStream& stream);
  absl::StatusOr<bool> Query(const EmulatedEvent& event);
  absl::Status Synchronize(const EmulatedEvent& event);
  absl::Status Synchronize(EmulatedStream& stream);

  absl::Status BeginCapture(EmulatedStream& stream);
  absl::StatusOr<std::unique_ptr<EmulatedGraph>> EndCapture(EmulatedStream& stream);
  absl::Status Replay(EmulatedGraph& graph, EmulatedStream& stream);
  // Returns the capture that the stream is part of, or null.
  static std::shared_ptr<EmulatedCapture> CaptureOf(EmulatedStream& stream);
  // Returns FailedPrecondition if the calling thread is capturing, and makes that capture fail.
  absl::Status Refuse(absl::string_view call) const { return captures_.Refuse(call); }

  // The scheduler that runs the work.
  StreamScheduler& scheduler() { return scheduler_; }

 private:
  friend struct EmulatedStream;
  void Destroy(EmulatedStream& stream);
  static SharedPoint LatestOf(const EmulatedEvent& event);
  StreamPoint PlaceOf(const EmulatedEvent& event, const SharedPoint& shared) const;
  absl::StatusOr<std::shared_ptr<const GraphNodes>> End(EmulatedCapture& capture);
  absl::Status CheckRecorded(const EmulatedEvent& event, absl::string_view call) const;

  Mutex* const mutex_;
  StreamScheduler scheduler_;
  OpenRecordings recordings_;  // destroyed before the scheduler that it uses
  OpenCaptures captures_;
};

}  // namespace baton
