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

// A copy, fill, launch or product, with all that it needs.
using EmulatedWork = std::function<absl::Status()>;

struct GraphNode {
  EmulatedWork work;
  std::vector<int> before;  // nodes that it waits for, all of lower number
};
using GraphNodes = std::vector<GraphNode>;

// One run of a graph's nodes, each at any time after those before it.
class GraphReplay {
 public:
  explicit GraphReplay(std::shared_ptr<const GraphNodes> nodes);
  bool done() const { return ready_.empty(); }
  // Runs a random one of the nodes that can run. Not when done.
  absl::Status Step(std::mt19937_64& random);

 private:
  std::shared_ptr<const GraphNodes> nodes_;
  std::vector<std::vector<int>> after_;
  std::vector<int> missing_;  // nodes before each that have not run
  std::vector<int> ready_;
};

// What is recorded between BeginCapture and EndCapture, of all streams that joined. A stream's
// *tails* are the nodes that its next one waits for.
class EmulatedCapture : public DeviceCapture {
 public:
  using Tails = std::set<int>;

  explicit EmulatedCapture(const EmulatedQueue* origin) : DeviceCapture(origin), origin_(origin) {}

  void Add(const EmulatedQueue* stream, EmulatedWork work);
  const Tails& TailsOf(const EmulatedQueue* stream) { return tails_[stream]; }
  // What `stream` does next waits for these too. It joins if it was not there.
  void WaitFor(const EmulatedQueue* stream, const Tails& tails);

  // Ends it. FailedPrecondition when it was spoilt, or when a stream that joined has not been
  // waited for.
  absl::StatusOr<std::shared_ptr<const GraphNodes>> Finish();

 private:
  const EmulatedQueue* const origin_;
  GraphNodes nodes_;
  absl::flat_hash_map<const EmulatedQueue*, Tails> tails_;
};

}  // namespace baton
