#pragma once

#include <functional>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/runtime/device_capture.h"

namespace baton {

class EmulatedQueue;

// A copy, fill, launch or GEMM, with everything that it needs to run.
using EmulatedWork = std::function<absl::Status()>;

struct GraphNode {
  EmulatedWork work;
  std::vector<int> before;  // earlier nodes that this one waits for
};
using GraphNodes = std::vector<GraphNode>;

// One run of a graph. A node may run at any time after the nodes that it waits for.
class GraphReplay {
 public:
  explicit GraphReplay(std::shared_ptr<const GraphNodes> nodes);
  bool done() const { return ready_.empty(); }
  // Runs one random node among those that can run. At least one node must not have run yet.
  absl::Status Step(std::mt19937_64& random);

 private:
  std::shared_ptr<const GraphNodes> nodes_;
  std::vector<std::vector<int>> after_;
  std::vector<int> missing_;  // per node: number of nodes that it waits for and that have not run
  std::vector<int> ready_;
};

// The work of one capture: everything recorded between BeginCapture and EndCapture, by all streams
// that joined. A stream's *tails* are the nodes that its next node waits for.
class EmulatedCapture : public DeviceCapture {
 public:
  using Tails = std::set<int>;

  explicit EmulatedCapture(const EmulatedQueue* origin) : DeviceCapture(origin), origin_(origin) {}

  void Add(const EmulatedQueue* stream, EmulatedWork work);
  const Tails& TailsOf(const EmulatedQueue* stream) { return tails_[stream]; }
  // Makes the next work of `stream` also wait for the nodes `tails`. Adds the stream to this
  // capture if needed.
  void WaitFor(const EmulatedQueue* stream, const Tails& tails);

  // Ends the capture. Returns FailedPrecondition if a call has made the capture fail, or if the
  // stream that began it has not waited for every stream that joined.
  absl::StatusOr<std::shared_ptr<const GraphNodes>> Finish();

 private:
  const EmulatedQueue* const origin_;
  GraphNodes nodes_;
  absl::flat_hash_map<const EmulatedQueue*, Tails> tails_;
};

}  // namespace baton
