#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/base/mutex.h"
#include "tests/goodput/load/request_stream.h"
#include "tests/goodput/load/server_connection.h"
#include "tests/goodput/load/stop_flag.h"

namespace baton {

// The open requests, and the records of the ended ones. Any thread.
class OpenStreams {
 public:
  // `changed` is notified whenever a request ends. It must outlive this object.
  OpenStreams(const SloTargets& targets, StopFlag* changed)
      : targets_(targets), changed_(changed) {}
  // All requests must have ended. Aborts if one is open.
  ~OpenStreams();

  // Sends a request. `server` must outlive it. For the other arguments see ServerConnection.
  void Start(RequestRecord record, RequestStream::Clock::time_point start, bool keep_token_ids,
             ServerConnection* server, const OutgoingRequest& request, absl::Duration timeout);
  // Cancels all open requests, and returns when they have ended.
  void StopAll();

  uint32_t sent() const { return sent_; }
  uint32_t open() const { return open_; }
  uint32_t open_measured() const { return open_measured_; }
  uint32_t ended_measured() const { return ended_measured_; }
  uint32_t good() const { return good_; }

  // Call when no request is open. Returns all records, in the order in which the requests ended.
  std::vector<RequestRecord> TakeRecords();

 private:
  void OnEnd(RequestStream* stream);

  const SloTargets targets_;
  StopFlag* const changed_;
  std::atomic<uint32_t> sent_ = 0, open_ = 0, open_measured_ = 0, ended_measured_ = 0, good_ = 0;
  Mutex mutex_;
  CondVar none_open_;
  absl::flat_hash_map<RequestStream*, std::unique_ptr<RequestStream>> streams_
      ABSL_GUARDED_BY(mutex_);
  std::vector<RequestRecord> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
