#include "kernels/mutations/mutations.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "common/base/check.h"
#include "kernels/mutations/is_on.h"

namespace baton::mutations {
namespace {

std::atomic<int> on = 0;
std::array<std::atomic<bool>, kMaxMutations + 1> reached;

}  // namespace

bool IsOn(int number) {
  std::atomic<bool>& seen = reached[number];
  // Stores only once: a store in every call would make threads compete for the cache line.
  if (!seen.load(std::memory_order_relaxed)) seen.store(true, std::memory_order_relaxed);
  return on.load(std::memory_order_relaxed) == number;
}

std::ostream& operator<<(std::ostream& out, const Mutation& mutation) {
  return out << mutation.name << " (" << mutation.place << ")";
}

std::vector<Mutation> OfList(absl::Span<const Mutation> mutations, absl::string_view list) {
  std::vector<Mutation> found;
  for (const Mutation& mutation : mutations) {
    if (mutation.list == list) found.push_back(mutation);
  }
  BATON_CHECK(!found.empty()) << "there is no mutation of a list named " << list;
  return found;
}

std::vector<Mutation> Without(absl::Span<const Mutation> mutations,
                              absl::Span<const Mutation> others) {
  std::vector<Mutation> rest;
  for (const Mutation& mutation : mutations) {
    if (std::find(others.begin(), others.end(), mutation) == others.end()) rest.push_back(mutation);
  }
  return rest;
}

ScopedMutation::ScopedMutation(int number) {
  BATON_CHECK(number >= 1 && number <= kMaxMutations) << "mutation " << number;
  const int before = on.exchange(number);
  BATON_CHECK(before == 0) << "mutation " << before << " is on";
}

ScopedMutation::~ScopedMutation() { on = 0; }

bool WasReached(int number) { return reached[number]; }

void ForgetReached() {
  for (std::atomic<bool>& seen : reached) seen = false;
}

MutationReport TryMutations(absl::Span<const Mutation> mutations,
                            const std::function<absl::Status(uint64_t seed)>& judge, int seeds) {
  MutationReport report;
  std::vector<std::vector<int>> seeds_of(mutations.size());  // those that reach the mutation's code
  for (int seed = 0; seed < seeds; ++seed) {
    ForgetReached();
    report.unmutated = judge(seed);
    if (!report.unmutated.ok()) return report;
    for (size_t i = 0; i < mutations.size(); ++i) {
      if (WasReached(mutations[i].number)) seeds_of[i].push_back(seed);
    }
  }
  for (size_t i = 0; i < mutations.size(); ++i) {
    if (seeds_of[i].empty()) continue;
    const ScopedMutation is_on(mutations[i].number);
    const bool caught = std::any_of(seeds_of[i].begin(), seeds_of[i].end(),
                                    [&](int seed) { return !judge(seed).ok(); });
    (caught ? report.caught : report.missed).push_back(mutations[i]);
  }
  return report;
}

}  // namespace baton::mutations
