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
  std::string name;   // as its list has it
  std::string place;  // such as "kernels/cuda/kernels/argmax.cu:43"

  bool operator==(const Mutation&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Mutation& mutation);

// Returns all mutations of the copy that the program is linked with. The copy brings the definition
// of this function, so a program can be linked with one copy at most.
std::vector<Mutation> AllMutations();

// Returns the mutations of one list. Dies where there are none.
std::vector<Mutation> OfList(absl::Span<const Mutation> mutations, absl::string_view list);

// Returns the mutations that are not among `others`.
std::vector<Mutation> Without(absl::Span<const Mutation> mutations,
                              absl::Span<const Mutation> others);

// Switches one mutation on for as long as this object lives. The process has one switch, because
// the mutated code has no parameter that could bring it one. So there may be one such object at a
// time.
class ScopedMutation {
 public:
  explicit ScopedMutation(int number);
  ~ScopedMutation();
  ScopedMutation(const ScopedMutation&) = delete;
};

// True if code that this mutation would change has run, on any thread, since ForgetReached.
bool WasReached(int number);
void ForgetReached();

struct MutationReport {
  // The first failure without a mutation. Where it is not OK, no mutation was tried.
  absl::Status unmutated;
  // The mutations that were tried, by whether the judge found something wrong.
  std::vector<Mutation> caught, missed;
};

// Tests a test. `judge` runs code of the mutated copy with choices drawn from the seed, and returns
// an error for the first thing wrong. It is called with seeds 0 to seeds - 1 while no mutation is
// on, and must find nothing. Then those of `mutations` that these runs reached are tried one by
// one: it is called with one seed after the other, until it finds something.
MutationReport TryMutations(absl::Span<const Mutation> mutations,
                            const std::function<absl::Status(uint64_t seed)>& judge, int seeds = 6);

}  // namespace baton::mutations
