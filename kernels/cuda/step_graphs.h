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
  int recorded = 0;  // number of graphs that were recorded and then ran for the first time
  int replayed = 0;
  int dropped = 0;  // number of graphs dropped because there were more than kMaxGraphs
  int refused = 0;  // number of kinds of steps whose recording or replay failed
};

// Records steps as graphs and replays them. There is one graph for each kind of step, which is a
// variant and a number of rows that RowsFor returns. The first step of a kind runs without a graph,
// so that its memory is allocated and cuBLASLt has chosen its kernels. The second one is recorded,
// and later ones replay the graph. Graphs are not recorded when the worker starts: that would take
// longer and need artificial steps, and a worker may never use most of the graphs.
class StepGraphs {
 public:
  // All values that the step's kernels are given and that do not follow from its number of rows. A
  // graph is valid as long as these values stay the same.
  using Given = std::vector<uint64_t>;

  // The arguments must outlive this object. `counts` may be null.
  StepGraphs(DeviceRuntime* runtime, DeviceStream* stream, StepGraphCounts* counts)
      : runtime_(runtime), stream_(stream), counts_(counts) {}
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Max rows of a step that is recorded.
  static constexpr int kMaxRows = 512;
  // Max number of graphs, enough for two values of `variant` with every number of rows.
  // DeviceInfo::driver_bytes includes the memory of this many graphs. Before one more graph is
  // recorded, all enqueued work must run, and the graph that was replayed longest ago is dropped.
  // The next step that could have replayed the dropped graph is launched without a graph.
  static constexpr int kMaxGraphs = 32;
  // Returns the number of rows to which a step of `rows` rows is padded when it is recorded: 1, 2,
  // 4, 8, 16, 24, 32, 48, 64 and so on up to 512, but at most `max`. Returns 0 if such a step is
  // not recorded.
  static int RowsFor(int rows, int max);

  // Enqueues a step of `rows` rows: calls `ops`, or replays a graph that was recorded from a call
  // of `ops`. `variant` is a number that differs between steps with different operations. `given`
  // returns the present values on which a graph depends, such as addresses; `ops` may change them
  // by allocating memory. If recording or replaying fails, the failure is logged, and `ops` runs
  // this step and all later ones of its kind.
  absl::Status Run(int rows, int variant, absl::FunctionRef<Given()> given,
                   absl::FunctionRef<absl::Status()> ops);

 private:
  struct Recorded {
    Given given;  // values given at the latest run
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
