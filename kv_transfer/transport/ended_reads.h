#pragma once

#include <deque>
#include <utility>

#include "absl/status/status.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// Reads of a transport that have ended and whose `done` has not been called yet. KV thread only,
// like all of the transport except Wake.
// Call Add from Read, or wherever the transport learns that a read has ended. Call Report only from
// Progress and Disconnect, because Transport may call `done` only there. (The transport's
// destructor calls Disconnect for every peer.) A `done` may call Read, and thereby Add, but not
// Report.
class EndedReads {
 public:
  static constexpr PeerId kAll = -1;

  void Add(ReadOperation operation, absl::Status status) {
    ended_.push_back({std::move(operation), std::move(status)});
  }
  bool empty() const { return ended_.empty(); }

  // Calls `done` of the ended reads of `peer`, or of all peers for kAll, in the order in which they
  // ended. Returns true if there were any. Reads that end meanwhile are left for the next call.
  bool Report(PeerId peer) {
    std::deque<Ended> reads, others;
    reads.swap(ended_);
    bool any = false;
    for (Ended& read : reads) {
      if (peer != kAll && read.operation.peer != peer) {
        others.push_back(std::move(read));
        continue;
      }
      any = true;
      read.operation.done(std::move(read.status));
    }
    for (auto read = others.rbegin(); read != others.rend(); ++read) {
      ended_.push_front(std::move(*read));
    }
    return any;
  }

 private:
  struct Ended {
    ReadOperation operation;
    absl::Status status;
  };
  std::deque<Ended> ended_;
};

}  // namespace baton
