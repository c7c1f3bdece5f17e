#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// Carries KV between workers of one process: reads are copies made in the reader's Progress, notes
// are queued. Any thread; each of its transports has a thread of its own.
class InProcessFabric {
 public:
  struct Options {
    // One thread drives all transports by hand: Wait returns at once.
    bool single_threaded = false;
  };
  InProcessFabric() : InProcessFabric(Options{}) {}
  explicit InProcessFabric(Options options);
  ~InProcessFabric();

  // The fabric must outlive it. Its destruction is its peers' Unavailable.
  std::unique_ptr<Transport> CreateTransport();

 private:
  friend class InProcessTransport;
  struct Endpoint;

  // Null when that transport is gone or never was.
  std::shared_ptr<Endpoint> Find(absl::string_view address);

  const Options options_;
  const std::string prefix_;  // of addresses: another fabric's are not ours
  Mutex mutex_;
  uint64_t created_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::shared_ptr<Endpoint>, std::less<>> endpoints_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
