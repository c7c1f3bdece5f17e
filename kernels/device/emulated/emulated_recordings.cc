#include "kernels/device/emulated/emulated_recordings.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace baton {
namespace {

// Interval at which the thread of OpenRecordings checks if another process waits for a recording.
// The thread must poll, because the other process cannot wake it.
constexpr absl::Duration kPause = absl::Milliseconds(1);

}  // namespace

OpenRecordings::~OpenRecordings() {
  if (!server_.joinable()) return;
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.Signal();
  }
  server_.join();
}

absl::Status OpenRecordings::Record(const std::shared_ptr<SharedEvent>& event,
                                    const std::shared_ptr<EmulatedQueue>& queue) {
  RETURN_IF_ERROR(scheduler_->failure());
  ForgetEnded();
  std::optional<uint32_t> recording;
  while (!(recording = event->BeginRecording()).has_value()) {
    const SharedPoint oldest = {event, event->recorded() + 1 - SharedEvent::kMaxOpen};
    const std::optional<StreamPoint> ours = Find(oldest);
    RETURN_IF_ERROR(ours ? scheduler_->RunUntil(*ours) : scheduler_->Await(oldest));
  }
  queue->Push(SharedRecording{{event, *recording}});
  open_.push_back({{event, *recording}, {queue, queue->end()}});
  if (!server_.joinable()) server_ = std::thread([this] { Serve(); });
  changed_.Signal();
  return absl::OkStatus();
}

std::optional<StreamPoint> OpenRecordings::Find(const SharedPoint& recording) const {
  for (const Open& open : open_) {
    if (open.recording.event == recording.event &&
        open.recording.recording == recording.recording && !open.place.Reached()) {
      return open.place;
    }
  }
  return std::nullopt;
}

void OpenRecordings::ForgetEnded() {
  open_.erase(std::remove_if(open_.begin(), open_.end(),
                             [](const Open& open) { return open.place.Reached(); }),
              open_.end());
}

// Runs on the thread of this object. The thread never waits for another process: that process may
// itself wait for another recording of this process.
void OpenRecordings::Serve() {
  MutexLock lock(mutex_);
  while (!ending_) {
    ForgetEnded();
    if (open_.empty()) {
      changed_.Wait(mutex_);
      continue;
    }
    const std::vector<Open> open = open_;
    for (const Open& one : open) {
      if (!one.recording.event->Wanted(one.recording.recording)) continue;
      // An error of RunTowards is not lost: the scheduler returns it from every later call that
      // runs work.
      scheduler_->RunTowards(one.place).IgnoreError();
    }
    changed_.WaitFor(mutex_, kPause);
  }
}

}  // namespace baton
