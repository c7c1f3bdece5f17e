#pragma once

namespace baton::mutations {

// Example functions that mutations_test.cc mutates.

int LargerOf(int a, int b);

// Returns the sum of 1 to n, or -1 if n is negative.
int SumTo(int n);

// Returns the line of its own definition in example.cc.
int LineOfThis();

// Not called by any test.
int Unreached();

}  // namespace baton::mutations
