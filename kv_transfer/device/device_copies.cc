#include "kv_transfer/device/device_copies.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace baton {

absl::StatusOr<std::unique_ptr<DeviceCopies>> DeviceCopies::Create(DeviceRuntime* runtime) {
  ASSIGN_OR_RETURN(auto stream, runtime->CreateStream(StreamKind::kCopy));
  return std::unique_ptr<DeviceCopies>(new DeviceCopies(runtime, std::move(stream)));
}

DeviceCopies::~DeviceCopies() { (void)runtime_->Synchronize(*stream_); }

absl::Status DeviceCopies::Copy(void* to, const void* from, size_t bytes, Done done) {
  Copying copying{nullptr, std::move(done)};
  if (spare_events_.empty()) {
    ASSIGN_OR_RETURN(auto event, runtime_->CreateEvent());
    copying.event = std::move(event);
  } else {
    copying.event = std::move(spare_events_.back());
    spare_events_.pop_back();
  }
  absl::Status status = runtime_->Copy(to, from, bytes, *stream_);
  if (status.ok()) status = runtime_->Record(*copying.event, *stream_);
  if (status.ok()) copies_.push_back(std::move(copying));
  return status;
}

// Reports the oldest copy. The copy has finished, or, if `status` is an error, it will never
// finish.
void DeviceCopies::ReportOldest(const absl::Status& status) {
  Copying copying = std::move(copies_.front());
  copies_.pop_front();
  spare_events_.push_back(std::move(copying.event));
  copying.done(status);
}

bool DeviceCopies::Progress() {
  bool any = false;
  while (!copies_.empty()) {
    const absl::StatusOr<bool> ran = runtime_->Query(*copies_.front().event);
    if (ran.ok() && !*ran) break;
    ReportOldest(ran.status());
    any = true;
  }
  return any;
}

void DeviceCopies::FinishOldest() {
  BATON_CHECK(!copies_.empty());
  ReportOldest(runtime_->Synchronize(*copies_.front().event));
}

}  // namespace baton
