#include "kernels/cuda/step_graphs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int kMostRows = 512;

}  // namespace

StepGraphs::~StepGraphs() {
  // A graph may go only when it has run.
  if (!steps_.empty()) runtime_->Synchronize(*stream_).IgnoreError();
}

int StepGraphs::RowsFor(int rows, int most) {
  if (rows < 1 || rows > std::min(most, kMostRows)) return 0;
  const int above = static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows)));
  const int between = above / 4 * 3;
  return std::min(above > 16 && rows <= between ? between : above, most);
}

absl::Status StepGraphs::Run(int rows, absl::FunctionRef<Given()> given,
                             absl::FunctionRef<absl::Status()> ops) {
  Recorded& step = steps_[rows];
  Given now = given();
  const bool as_before = now == step.given;
  if (step.graph != nullptr && !as_before) {
    if (absl::Status status = runtime_->Synchronize(*stream_); !status.ok()) return status;
    step.graph = nullptr;
  }
  if (step.graph == nullptr) {
    if (!as_before) {
      step.given.clear();
      if (absl::Status status = ops(); !status.ok()) return status;
      step.given = given();
      return absl::OkStatus();
    }
    if (absl::Status status = Record(rows, ops, &step); !status.ok()) return status;
    if (counts_ != nullptr) ++counts_->recorded;
  } else if (counts_ != nullptr) {
    ++counts_->replayed;
  }
  return runtime_->Replay(*step.graph, *stream_);
}

absl::Status StepGraphs::Record(int rows, absl::FunctionRef<absl::Status()> ops, Recorded* step) {
  absl::Status status = runtime_->BeginCapture(*stream_);
  if (!status.ok()) return status;
  status = ops();
  auto graph = runtime_->EndCapture(*stream_);
  if (status.ok()) status = graph.status();
  if (!status.ok()) {
    step->given.clear();
    return absl::Status(
        status.code(),
        absl::StrCat("recording a step of ", rows,
                     " rows (which --cuda-graphs=false does without): ", status.message()));
  }
  step->graph = *std::move(graph);
  return absl::OkStatus();
}

}  // namespace baton
