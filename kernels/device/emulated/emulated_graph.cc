#include "kernels/device/emulated/emulated_graph.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {

GraphReplay::GraphReplay(std::shared_ptr<const GraphNodes> nodes)
    : nodes_(std::move(nodes)), after_(nodes_->size()), missing_(nodes_->size()) {
  for (size_t i = 0; i < nodes_->size(); ++i) {
    missing_[i] = static_cast<int>((*nodes_)[i].before.size());
    for (const int before : (*nodes_)[i].before) after_[before].push_back(static_cast<int>(i));
    if (missing_[i] == 0) ready_.push_back(static_cast<int>(i));
  }
}

absl::Status GraphReplay::Step(std::mt19937_64& random) {
  std::swap(ready_[random() % ready_.size()], ready_.back());
  const int node = ready_.back();
  ready_.pop_back();
  RETURN_IF_ERROR((*nodes_)[node].work());
  for (const int after : after_[node]) {
    if (--missing_[after] == 0) ready_.push_back(after);
  }
  return absl::OkStatus();
}

void EmulatedCapture::Add(const EmulatedQueue* stream, EmulatedWork work) {
  Tails& tails = tails_[stream];
  nodes_.push_back({std::move(work), {tails.begin(), tails.end()}});
  tails = {static_cast<int>(nodes_.size()) - 1};
}

void EmulatedCapture::WaitFor(const EmulatedQueue* stream, const Tails& tails) {
  if (stream == origin_ || tails_.contains(stream)) {
    tails_[stream].insert(tails.begin(), tails.end());
    return;
  }
  // Adds a node that does nothing for the stream that joins the capture. Finish fails if the stream
  // that began the capture does not wait for this node, even if the joined stream runs no work.
  nodes_.push_back({[] { return absl::OkStatus(); }, {tails.begin(), tails.end()}});
  tails_[stream] = {static_cast<int>(nodes_.size()) - 1};
}

absl::StatusOr<std::shared_ptr<const GraphNodes>> EmulatedCapture::Finish() {
  RETURN_IF_ERROR(End());
  std::vector<bool> joined(nodes_.size());
  for (const int tail : tails_[origin_]) joined[tail] = true;
  for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0; --i) {
    if (!joined[i]) continue;
    for (const int before : nodes_[i].before) joined[before] = true;
  }
  const int lost = static_cast<int>(std::count(joined.begin(), joined.end(), false));
  if (lost > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("EndCapture: ", lost, " of ", nodes_.size(),
                     " nodes are on streams that the captured one has not waited for"));
  }
  return std::make_shared<const GraphNodes>(std::move(nodes_));
}

}  // namespace baton
