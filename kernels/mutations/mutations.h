#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton::mutations {

// A fault in the mutated copy of the sources, which can be switched on by its number.
struct Mutation {
  int number = 0;
  std::string list;   // the file name of its list, without .txt
  std::string name;   // its name in the list
  std::string place;  // for example "kernels/cuda/kernels/argmax.cu:43"

  bool operator==(const Mutation&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Mutation& mutation);

// Returns all mutations of the copy that the program is linked with. The copy defines this
// function, so a program can be linked with at most one copy.
std::vector<Mutation> AllMutations();

// Returns the mutations of one list, which is named as in Mutation::list. Aborts if there are none.
std::vector<Mutation> OfList(absl::Span<const Mutation> mutations, absl::string_view list);

// Returns the mutations that are not among `others`.
std::vector<Mutation> Without(absl::Span<const Mutation> mutations,
                              absl::Span<const Mutation> others);

// Switches one mutation on while this object lives. There is one switch per process, because the
// mutated code has no parameter for it. So only one such object may exist at a time.
class ScopedMutation {
 public:
  explicit ScopedMutation(int number);
  ~ScopedMutation();
  ScopedMutation(const ScopedMutation&) = delete;
};

// Returns true if any thread has run code that this mutation changes, since the last
// ForgetReached().
bool WasReached(int number);
void ForgetReached();

struct MutationReport {
  // The first error that `judge`, the argument of TryMutations, returned without a mutation, or OK.
  // If it is an error, no mutation was tried.
  absl::Status unmutated;
  // The mutations that were tried. With a mutation of `caught` switched on, `judge` returned an
  // error; with one of `missed`, it returned none.
  std::vector<Mutation> caught, missed;
};

// Tests a test. `judge` runs code of the mutated copy with inputs that depend on the seed, and
// returns the first error that it finds. First, `judge` is called with seeds 0 to seeds - 1 without
// a mutation, and must find no error. Then each of `mutations` whose code was reached in these runs
// is tried: `judge` is called with one after the other of the seeds that reached the code, until it
// finds an error.
MutationReport TryMutations(absl::Span<const Mutation> mutations,
                            const std::function<absl::Status(uint64_t seed)>& judge, int seeds = 6);

}  // namespace baton::mutations
