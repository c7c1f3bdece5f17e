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

// What became of steps that can be recorded.
struct StepGraphCounts {
  int recorded = 0;  // and run so for the first time
  int replayed = 0;
  int dropped = 0;  // graphs, for want of room
  int refused = 0;  // kinds of steps whose recording or replay failed
};

// Steps that are recorded as graphs, one for each number of rows that RowsFor gives, and variant.
// The first time a step of that many rows is run as it is, so that memory and cuBLASLt's choices
// are there; the second time it is recorded. That costs less than recording all of them at the
// start, most of which a worker may never need, and needs no made-up step.
class StepGraphs {
 public:
  // All that was given to kernels of the step and is not told by its rows. A graph is good for as
  // long as that is the same.
  using Given = std::vector<uint64_t>;

  // All must outlive this. `counts` may be null.
  StepGraphs(DeviceRuntime* runtime, DeviceStream* stream, StepGraphCounts* counts)
      : runtime_(runtime), stream_(stream), counts_(counts) {}
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // More are not recorded.
  static constexpr int kMostRows = 512;
  // Graphs there are at a time, which is what DeviceInfo::driver_bytes has room for: every number
  // of rows with two variants. For one more, that which was replayed longest ago is dropped, once
  // all that was put on the stream has run; its kind begins anew.
  static constexpr int kMostGraphs = 32;
  // With how many rows a step of `rows` is recorded, at most `most`: 1, 2, 4, 8, 16, 24, 32, 48, 64
  // and so on up to 512. 0: it is not.
  static int RowsFor(int rows, int most);

  // Puts a step of that many rows on the stream: by `ops`, or by what they were when they were
  // recorded. `given` tells what is given now; `ops` may change it by what it allocates. Steps of
  // another `variant` are other operations. Where recording or replaying fails, which is logged,
  // the step and all others of its kind are run by `ops`.
  absl::Status Run(int rows, int variant, absl::FunctionRef<Given()> given,
                   absl::FunctionRef<absl::Status()> ops);

 private:
  struct Recorded {
    Given given;  // when it was run last
    std::unique_ptr<DeviceGraph> graph;
    uint64_t replay = 0;  // its latest, as they are counted here
    bool refused = false;
  };

  absl::Status RunWithout(int rows, const absl::Status& why, absl::FunctionRef<absl::Status()> ops,
                          Recorded* step);
  absl::Status MakeRoom();
  absl::StatusOr<std::unique_ptr<DeviceGraph>> Record(absl::FunctionRef<absl::Status()> ops);

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  std::map<std::pair<int, int>, Recorded> steps_;  // by rows and variant
  int graphs_ = 0;                                 // there are
  uint64_t replays_ = 0;                           // there were
  StepGraphCounts* const counts_;
};

}  // namespace baton
