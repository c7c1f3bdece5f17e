#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// Carries KV between workers of one process. Reads are copies made in the reader's Progress, and
// notes are queued. CreateTransport may be called on any thread; each transport is used on one
// thread of its own.
class InProcessFabric {
 public:
  struct Options {
    // True if one thread drives all transports by hand. Wait then returns immediately.
    bool single_threaded = false;
  };
  InProcessFabric() : InProcessFabric(Options{}) {}
  explicit InProcessFabric(Options options);
  ~InProcessFabric();

  // The fabric must outlive the returned transport. Once the transport is destroyed, its peers get
  // Unavailable.
  std::unique_ptr<Transport> CreateTransport();

 private:
  friend class InProcessTransport;
  struct Endpoint;

  // Returns the endpoint with this address, or null if its transport has been destroyed or never
  // existed.
  std::shared_ptr<Endpoint> Find(absl::string_view address);

  const Options options_;
  // Prefix of this fabric's addresses. Each fabric has a different prefix.
  const std::string prefix_;
  Mutex mutex_;
  uint64_t created_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::shared_ptr<Endpoint>, std::less<>> endpoints_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
