#pragma once

namespace baton::mutations {

// What mutations_test.cc mutates.

int LargerOf(int a, int b);

// The sum of 1 to n; -1 where n is negative.
int SumTo(int n);

// The line of example.cc that this function stands in.
int LineOfThis();

// No test calls this.
int Unreached();

}  // namespace baton::mutations
