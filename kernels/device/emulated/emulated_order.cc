#include "kernels/device/emulated/emulated_order.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {

EmulatedStream::~EmulatedStream() { order->Destroy(*this); }

std::unique_ptr<EmulatedStream> EmulatedOrder::CreateStream(StreamKind kind) {
  return std::make_unique<EmulatedStream>(this, kind, scheduler_.CreateQueue());
}

void EmulatedOrder::Destroy(EmulatedStream& stream) {
  MutexLock lock(mutex_);
  if (const auto capture = CaptureOf(stream); capture != nullptr) {
    capture->Spoil("a stream of the capture was destroyed").IgnoreError();
    if (capture->IsOrigin(stream.queue.get())) End(*capture).status().IgnoreError();
  }
  scheduler_.RunUntil(stream.End()).IgnoreError();
  scheduler_.DestroyQueue(stream.queue);
}

absl::Status EmulatedOrder::Put(EmulatedStream& stream, EmulatedWork work) {
  RETURN_IF_ERROR(scheduler_.failure());
  if (const auto capture = CaptureOf(stream); capture != nullptr) {
    capture->Add(stream.queue.get(), std::move(work));
  } else {
    stream.queue->Push(std::move(work));
  }
  return absl::OkStatus();
}

absl::Status EmulatedOrder::Record(EmulatedEvent& event, EmulatedStream& stream) {
  const auto capture = CaptureOf(stream);
  if (event.shared != nullptr) {
    if (capture != nullptr) return capture->Spoil("Record: an interprocess event in a capture");
    return recordings_.Record(event.shared, stream.queue);
  }
  event.capture = capture;
  if (capture != nullptr) {
    event.tails = capture->TailsOf(stream.queue.get());
  } else {
    event.point = stream.End();
  }
  return scheduler_.failure();
}

absl::Status EmulatedOrder::WaitFor(EmulatedEvent& event, EmulatedStream& stream) {
  RETURN_IF_ERROR(scheduler_.failure());
  const auto capture = CaptureOf(stream);
  if (event.capture != nullptr) {  // the latest recording was in a capture
    if (event.capture->ended() || (capture != nullptr && capture != event.capture)) {
      if (capture != nullptr) capture->Spoil("WaitFor: an event of another capture").IgnoreError();
      return event.capture->Spoil("WaitFor: the event was last recorded in another capture");
    }
    stream.capture = event.capture;
    event.capture->WaitFor(stream.queue.get(), event.tails);
    return absl::OkStatus();
  }
  const SharedPoint shared = LatestOf(event);
  if (shared.recording == 0 && event.point.queue == nullptr) {
    return absl::OkStatus();  // never recorded
  }
  if (capture != nullptr) {
    return capture->Spoil("WaitFor: the event was recorded outside of the capture");
  }
  const StreamPoint point = PlaceOf(event, shared);
  if (point.queue == nullptr && event.shared != nullptr) {
    stream.queue->Push(shared);
  } else if (!point.Reached()) {
    stream.queue->Push(point);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> EmulatedOrder::Query(const EmulatedEvent& event) {
  RETURN_IF_ERROR(CheckRecorded(event, "Query"));
  const SharedPoint shared = LatestOf(event);
  const StreamPoint point = PlaceOf(event, shared);
  if (point.queue == nullptr && event.shared != nullptr) {
    event.shared->Want(shared.recording);
    return event.shared->Reached(shared.recording);
  }
  bool reached = point.Reached();
  if (!reached && scheduler_.Random() % 2 == 0) {
    scheduler_.RunSome();  // the next Query shows the effect
  } else if (!reached) {
    scheduler_.RunTowards(point).IgnoreError();
    reached = point.Reached();
  }
  RETURN_IF_ERROR(scheduler_.failure());
  return reached;
}

absl::Status EmulatedOrder::Synchronize(const EmulatedEvent& event) {
  RETURN_IF_ERROR(CheckRecorded(event, "Synchronize"));
  const SharedPoint shared = LatestOf(event);
  const StreamPoint point = PlaceOf(event, shared);
  if (point.queue != nullptr || event.shared == nullptr) return scheduler_.RunUntil(point);
  return scheduler_.Await(shared);
}

absl::Status EmulatedOrder::Synchronize(EmulatedStream& stream) {
  if (const auto capture = CaptureOf(stream); capture != nullptr) {
    return capture->Spoil("Synchronize: the stream is being captured");
  }
  RETURN_IF_ERROR(Refuse("Synchronize"));
  return scheduler_.RunUntil(stream.End());
}

absl::Status EmulatedOrder::BeginCapture(EmulatedStream& stream) {
  RETURN_IF_ERROR(scheduler_.failure());
  RETURN_IF_ERROR(Refuse("BeginCapture"));
  if (const auto capture = CaptureOf(stream); capture != nullptr) {
    return capture->Spoil("BeginCapture: the stream is being captured already");
  }
  stream.capture = std::make_shared<EmulatedCapture>(stream.queue.get());
  captures_.Add(stream.capture);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<EmulatedGraph>> EmulatedOrder::EndCapture(EmulatedStream& stream) {
  const auto capture = CaptureOf(stream);
  if (capture == nullptr) {
    return absl::FailedPreconditionError("EndCapture: the stream is not being captured");
  }
  if (!capture->IsOrigin(stream.queue.get())) {
    return capture->Spoil("EndCapture: the capture was begun on another stream");
  }
  if (!capture->IsOwn()) return capture->Spoil("EndCapture: another thread began the capture");
  ASSIGN_OR_RETURN(auto nodes, End(*capture));
  return std::make_unique<EmulatedGraph>(this, std::move(nodes));
}

absl::Status EmulatedOrder::Replay(EmulatedGraph& graph, EmulatedStream& stream) {
  RETURN_IF_ERROR(scheduler_.failure());
  if (const auto capture = CaptureOf(stream); capture != nullptr) {
    return capture->Spoil("Replay: the stream is being captured");
  }
  RETURN_IF_ERROR(Refuse("Replay"));
  if (!graph.latest.Reached()) stream.queue->Push(graph.latest);
  stream.queue->Push(GraphReplay(graph.nodes));
  graph.latest = stream.End();
  return absl::OkStatus();
}

std::shared_ptr<EmulatedCapture> EmulatedOrder::CaptureOf(EmulatedStream& stream) {
  if (stream.capture != nullptr && stream.capture->ended()) stream.capture = nullptr;
  return stream.capture;
}

absl::StatusOr<std::shared_ptr<const GraphNodes>> EmulatedOrder::End(EmulatedCapture& capture) {
  captures_.Remove(capture);
  return capture.Finish();
}

// Returns the latest recording of an interprocess event, by any process.
SharedPoint EmulatedOrder::LatestOf(const EmulatedEvent& event) {
  return {event.shared, event.shared != nullptr ? event.shared->recorded() : 0};
}

// Returns the point in this process's work that the event's latest recording stands for. The point
// is empty if the recording has ended or is another process's.
StreamPoint EmulatedOrder::PlaceOf(const EmulatedEvent& event, const SharedPoint& shared) const {
  if (event.shared == nullptr) return event.point;
  return recordings_.Find(shared).value_or(StreamPoint{});
}

// Returns FailedPrecondition if an unfinished capture does not allow a thread to query this event
// or to wait for it. Also makes that capture fail.
absl::Status EmulatedOrder::CheckRecorded(const EmulatedEvent& event,
                                          absl::string_view call) const {
  if (event.capture != nullptr) {
    return event.capture->Spoil(absl::StrCat(call, ": the event was last recorded in a capture"));
  }
  return Refuse(call);
}

}  // namespace baton
