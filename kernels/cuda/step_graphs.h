#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/cuda/device_runtime.h"

namespace baton {

// What became of steps that can be recorded.
struct StepGraphCounts {
  int recorded = 0;  // and run so for the first time
  int replayed = 0;
};

// Steps that are recorded as graphs, one for each number of rows that RowsFor gives. The first time
// a step of that many rows is run as it is, so that memory and cuBLASLt's choices are there; the
// second time it is recorded. That costs less than recording all of them at the start, most of
// which a worker may never need, and needs no made-up step.
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

  // With how many rows a step of `rows` is recorded, at most `most`: 1, 2, 4, 8, 16, 24, 32, 48, 64
  // and so on up to 512. 0: it is not.
  static int RowsFor(int rows, int most);

  // Puts a step of that many rows on the stream: by `ops`, or by what they were when they were
  // recorded. `given` tells what is given now; `ops` may change it by what it allocates.
  absl::Status Run(int rows, absl::FunctionRef<Given()> given,
                   absl::FunctionRef<absl::Status()> ops);

 private:
  struct Recorded {
    Given given;  // when it was run last
    std::unique_ptr<DeviceGraph> graph;
  };

  absl::Status Record(int rows, absl::FunctionRef<absl::Status()> ops, Recorded* step);

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  std::map<int, Recorded> steps_;
  StepGraphCounts* const counts_;
};

}  // namespace baton
