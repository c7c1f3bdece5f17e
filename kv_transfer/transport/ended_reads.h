#pragma once

#include <deque>
#include <utility>

#include "absl/status/status.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// Reads of a transport that have ended and whose `done` is still to be called. KV thread only, as
// all of a transport but Wake: Add from Read, or wherever the transport learns that one has ended;
// Report from Progress and Disconnect (which the transport's destructor calls for every peer), for
// from there alone Transport may call `done`. A `done` may call Read, and so Add, but not Report.
class EndedReads {
 public:
  static constexpr PeerId kAll = -1;

  void Add(ReadOperation operation, absl::Status status) {
    ended_.push_back({std::move(operation), std::move(status)});
  }
  bool empty() const { return ended_.empty(); }

  // Calls `done` of those of one peer, in the order in which they ended; true when there were some.
  // Reads that end meanwhile are left for the next call.
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
