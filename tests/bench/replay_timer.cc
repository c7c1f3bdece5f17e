#include "tests/bench/replay_timer.h"

namespace baton {

absl::Status ReplayTimer::Replay(DeviceGraph& graph, DeviceStream& stream) {
  ++replays_;
  graph_ = &graph;
  stream_ = &stream;
  return inner_->Replay(graph, stream);
}

absl::Status ReplayTimer::ReplayAgain() {
  if (graph_ == nullptr) return absl::FailedPreconditionError("no graph has been replayed");
  return inner_->Replay(*graph_, *stream_);
}

absl::Status ReplayTimer::WaitForReplays() { return inner_->Synchronize(*stream_); }

}  // namespace baton
