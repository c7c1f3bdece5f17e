#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/simt/run_grid.h"

namespace baton::simt {

// What became of a kernel's mutations (BATON_MUTATE).
struct MutationReport {
  // How the kernels without a mutation ended, first failure of all seeds. Where it is not OK
  // nothing else was tried.
  absl::Status unmutated;
  std::set<std::string> caught, missed;
};

// Tests a test: `judge` runs checked kernels with the options that it is given (and sets `memory`,
// if it has one), compares their results with what they must be, and returns an error for the first
// thing wrong. It is called with seeds 0 to seeds - 1 without a mutation, and must find nothing;
// then with each mutation that these runs came across, until it finds something.
MutationReport TryMutations(const std::function<absl::Status(const SimtOptions&)>& judge,
                            int seeds = 6);

}  // namespace baton::simt
