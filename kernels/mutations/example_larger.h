#pragma once

namespace baton::mutations {

// Included by example.cc alone.
inline int Larger(int a, int b) { return a > b ? a : b; }

}  // namespace baton::mutations
