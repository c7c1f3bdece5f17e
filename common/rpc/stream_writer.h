#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/rpc/status.h"

namespace baton {

// The server's side of a stream of events to one caller: any thread sends, one write is under way
// at a time, the rest waits in a queue whose length the sender watches. Lives until gRPC is done
// with it and nobody holds it.
template <typename Event>
class StreamWriter : public grpc::ServerWriteReactor<Event> {
 public:
  // `cancelled` is called once, from a gRPC thread, if the caller goes away before the stream has
  // ended. `backlog` is called from any thread, one call at a time and in the order of what
  // happened, with the events not yet written, whenever their number changes, and once at first. It
  // may not call the writer. Neither may block.
  static std::shared_ptr<StreamWriter> Create() {
    auto writer = std::shared_ptr<StreamWriter>(new StreamWriter);
    writer->self_ = writer;
    return writer;
  }

  // Before the method returns the reactor to gRPC.
  void SetCancelled(std::function<void()> cancelled) { cancelled_ = std::move(cancelled); }
  // Any thread.
  void SetBacklog(std::function<void(size_t events)> backlog) {
    MutexLock lock(&mutex_);
    backlog_ = std::move(backlog);
    backlog_(queue_.size());
  }

  // Any thread. Events after End(), or once the caller has gone, are dropped.
  void Send(Event event) {
    MutexLock lock(&mutex_);
    if (ended_ || gone_) return;
    queue_.push_back(std::move(event));
    if (queue_.size() == 1) this->StartWrite(&queue_.front());
    if (backlog_) backlog_(queue_.size());
  }

  // Any thread. The stream ends with `status` once what was sent has been written. First call
  // counts.
  void End(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
    status_ = ToGrpcStatus(status);
    if (queue_.empty() || gone_) this->Finish(status_);
  }

 private:
  StreamWriter() = default;

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    queue_.pop_front();
    if (!ok) {
      gone_ = true;
      queue_.clear();
    }
    if (!queue_.empty()) {
      this->StartWrite(&queue_.front());
    } else if (ended_) {
      this->Finish(status_);
    }
    if (backlog_) backlog_(queue_.size());
  }

  void OnCancel() override {
    if (cancelled_) cancelled_();
  }

  void OnDone() override {
    // The last step of gRPC's: senders may still hold the object.
    cancelled_ = nullptr;
    const std::shared_ptr<StreamWriter> self = std::move(self_);
  }

  std::function<void()> cancelled_;
  std::shared_ptr<StreamWriter> self_;
  Mutex mutex_;
  std::function<void(size_t)> backlog_ ABSL_GUARDED_BY(mutex_);
  std::deque<Event> queue_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
