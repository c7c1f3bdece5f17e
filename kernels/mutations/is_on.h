#pragma once

namespace baton::mutations {

// Returns true if the mutation with this number is on (ScopedMutation in mutations.h). The mutated
// copy of the sources calls this function in every place that a mutation changes. Any thread.
bool IsOn(int number);

// Max number of a mutation. Numbers start at 1.
constexpr int kMaxMutations = 1000;

}  // namespace baton::mutations
