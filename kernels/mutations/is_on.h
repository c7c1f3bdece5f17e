#pragma once

namespace baton::mutations {

// True if the mutation of that number is on (ScopedMutation, mutations.h). The mutated copy of the
// sources calls this in each place that a mutation changes. Any thread.
bool IsOn(int number);

// The largest number that a mutation may have. The smallest one is 1.
constexpr int kMostMutations = 1000;

}  // namespace baton::mutations
