#pragma once

namespace baton::cpu {

// Cosine and sine of `angle` in radians, each within 0.51 units in the last place of a float while
// |angle| < 1e6, and within 1e-6 while |angle| < 2^31; NaN for what is larger or not finite. Plain
// double arithmetic in one order, so the same bits on every machine.
void CosSin(float angle, float* cosine, float* sine);

}  // namespace baton::cpu
