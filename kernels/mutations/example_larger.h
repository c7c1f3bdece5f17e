#pragma once

namespace baton::mutations {

// Only example.cc includes this file.
inline int Larger(int a, int b) { return a > b ? a : b; }

}  // namespace baton::mutations
