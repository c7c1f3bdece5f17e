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

// The server's side of a stream of events to one caller. Any thread sends. One write is pending at
// a time, and further events wait in a queue, whose length the sender watches. The object lives
// until gRPC has finished with it and no sender holds it.
template <typename Event>
class StreamWriter : public grpc::ServerWriteReactor<Event> {
 public:
  // Makes a writer that owns itself until gRPC has finished with it. Its two callbacks are set
  // later. Neither callback may block.
  // - `cancelled` is called once, on a gRPC thread, if the caller goes away before the stream has
  //   ended.
  // - `backlog` gets the number of events not yet written: once at first, and whenever it changes.
  //   It is called on any thread, one call at a time, in the order of the changes. It must not call
  //   the writer.
  static std::shared_ptr<StreamWriter> Create() {
    auto writer = std::shared_ptr<StreamWriter>(new StreamWriter);
    writer->self_ = writer;
    return writer;
  }

  // Sets the callback `cancelled`. Call it before the RPC method returns the reactor to gRPC.
  void SetCancelled(std::function<void()> cancelled) { cancelled_ = std::move(cancelled); }
  // Any thread. Sets the callback `backlog`.
  void SetBacklog(std::function<void(size_t events)> backlog) {
    MutexLock lock(&mutex_);
    backlog_ = std::move(backlog);
    backlog_(queue_.size());
  }

  // Any thread. Events after End(), or after the caller has gone, are dropped.
  void Send(Event event) {
    MutexLock lock(&mutex_);
    if (ended_ || gone_) return;
    queue_.push_back(std::move(event));
    if (queue_.size() == 1) this->StartWrite(&queue_.front());
    if (backlog_) backlog_(queue_.size());
  }

  // Any thread. Ends the stream with `status` once all sent events have been written. Only the
  // first call counts.
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
    // gRPC makes no call after OnDone. Senders may hold the object for longer, so this callback and
    // what it holds are released now.
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
