#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Counts of events in steps that can be recorded.
struct StepGraphCounts {
  int recorded = 0;  // graphs recorded, each of which then ran for the first time
  int replayed = 0;
  int dropped = 0;  // graphs dropped because there were too many
  int refused = 0;  // kinds of steps whose recording or replay failed
};

// Records steps as graphs and replays them. There is one graph for each variant and each number of
// rows that RowsFor returns. The first such step runs without a graph, so that its memory is
// allocated and cuBLASLt has chosen its kernels. The second one is recorded. A recording of all
// graphs at the start would take longer, though a worker may never need most of them, and would
// need artificial steps.
class StepGraphs {
 public:
  // All values given to the step's kernels that do not follow from its number of rows. A graph is
  // valid as long as they stay the same.
  using Given = std::vector<uint64_t>;

  // The arguments must outlive this object. `counts` may be null.
  StepGraphs(DeviceRuntime* runtime, DeviceStream* stream, StepGraphCounts* counts)
      : runtime_(runtime), stream_(stream), counts_(counts) {}
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Steps with more rows are not recorded.
  static constexpr int kMaxRows = 512;
  // Max number of graphs. DeviceInfo::driver_bytes includes memory for that many: every number of
  // rows in two variants. When one more is recorded, the graph that was replayed longest ago is
  // dropped, after all enqueued work has run. Steps of the dropped kind then start again without a
  // graph.
  static constexpr int kMaxGraphs = 32;
  // Returns the number of rows that a step of `rows` is padded to when it is recorded, at most
  // `most`: 1, 2, 4, 8, 16, 24, 32, 48, 64 and so on up to 512. Returns 0 if it is not recorded.
  static int RowsFor(int rows, int max);

  // Enqueues a step of `rows` rows: calls `ops`, or replays the graph that was recorded of them.
  // `given` returns the present values, which `ops` may change by allocating memory. Steps with
  // another `variant` have other operations. If recording or replaying fails, this is logged, and
  // `ops` runs this step and all later ones of its kind.
  absl::Status Run(int rows, int variant, absl::FunctionRef<Given()> given,
                   absl::FunctionRef<absl::Status()> ops);

 private:
  struct Recorded {
    Given given;  // at its latest run
    std::unique_ptr<DeviceGraph> graph;
    uint64_t replay = 0;  // number of its latest replay
    bool refused = false;
  };

  absl::Status RunWithout(int rows, const absl::Status& why, absl::FunctionRef<absl::Status()> ops,
                          Recorded* step);
  absl::Status MakeRoom();
  absl::StatusOr<std::unique_ptr<DeviceGraph>> Record(absl::FunctionRef<absl::Status()> ops);

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  std::map<std::pair<int, int>, Recorded> steps_;  // key: rows and variant
  int graphs_ = 0;                                 // graphs that exist
  uint64_t replays_ = 0;                           // replays so far
  StepGraphCounts* const counts_;
};

}  // namespace baton
