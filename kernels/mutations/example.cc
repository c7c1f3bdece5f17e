#include "kernels/mutations/example.h"

#include "kernels/mutations/example_larger.h"

namespace baton::mutations {

int LargerOf(int a, int b) { return Larger(a, b); }

int SumTo(int n) {
  int sum = 0;
  for (int i = 1; i <= n; ++i) {
    sum += i;
  }
  if (n < 0) sum = -1;
  return sum;
}

int LineOfThis() { return __LINE__; }

int Unreached() { return 1; }

}  // namespace baton::mutations
