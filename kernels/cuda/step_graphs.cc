#include "kernels/cuda/step_graphs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace baton {
StepGraphs::~StepGraphs() {
  // Replays must have run before their graph is destroyed.
  if (!steps_.empty()) runtime_->Synchronize(*stream_).IgnoreError();
}

int StepGraphs::RowsFor(int rows, int max) {
  if (rows < 1 || rows > std::min(max, kMaxRows)) return 0;
  const int above = static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows)));
  const int between = above / 4 * 3;
  return std::min(above > 16 && rows <= between ? between : above, max);
}

absl::Status StepGraphs::Run(int rows, int variant, absl::FunctionRef<Given()> given,
                             absl::FunctionRef<absl::Status()> ops) {
  Recorded& step = steps_[{rows, variant}];
  if (step.refused) return ops();
  Given now = given();
  const bool as_before = now == step.given;
  if (step.graph != nullptr && !as_before) {
    RETURN_IF_ERROR(runtime_->Synchronize(*stream_));
    step.graph = nullptr;
    --graphs_;
  }
  if (step.graph == nullptr) {
    if (!as_before) {
      step.given.clear();
      RETURN_IF_ERROR(ops());
      step.given = given();
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(MakeRoom());
    auto graph = Record(ops);
    if (!graph.ok()) return RunWithout(rows, graph.status(), ops, &step);
    step.graph = *std::move(graph);
    ++graphs_;
    if (counts_ != nullptr) ++counts_->recorded;
  } else if (counts_ != nullptr) {
    ++counts_->replayed;
  }
  step.replay = ++replays_;
  const absl::Status replayed = runtime_->Replay(*step.graph, *stream_);
  if (replayed.ok()) return replayed;
  // The failed replay enqueued nothing, but earlier ones must have run before the graph is
  // destroyed.
  RETURN_IF_ERROR(runtime_->Synchronize(*stream_));
  step.graph = nullptr;
  --graphs_;
  return RunWithout(rows, replayed, ops, &step);
}

// If there are too many graphs, drops the one that was replayed longest ago. First waits for all
// enqueued work, because the previous step may have replayed this graph and may still be running.
absl::Status StepGraphs::MakeRoom() {
  if (graphs_ < kMaxGraphs) return absl::OkStatus();
  auto oldest = steps_.end();
  for (auto it = steps_.begin(); it != steps_.end(); ++it) {
    if (it->second.graph == nullptr) continue;
    if (oldest == steps_.end() || it->second.replay < oldest->second.replay) oldest = it;
  }
  RETURN_IF_ERROR(runtime_->Synchronize(*stream_));
  steps_.erase(oldest);
  --graphs_;
  if (counts_ != nullptr) ++counts_->dropped;
  return absl::OkStatus();
}

absl::Status StepGraphs::RunWithout(int rows, const absl::Status& why,
                                    absl::FunctionRef<absl::Status()> ops, Recorded* step) {
  Log(Severity::kWarning, "step_without_graph", {{"rows", rows}, {"error", why.message()}});
  step->refused = true;
  if (counts_ != nullptr) ++counts_->refused;
  return ops();
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> StepGraphs::Record(
    absl::FunctionRef<absl::Status()> ops) {
  absl::Status status = runtime_->BeginCapture(*stream_);
  RETURN_IF_ERROR(status);
  status = ops();
  auto graph = runtime_->EndCapture(*stream_);
  RETURN_IF_ERROR(status);
  return graph;
}

}  // namespace baton
