#pragma once

namespace baton::cpu {

// Computes cosine and sine of `angle`, in radians. Any thread; cannot fail. The error is at most
// 0.51 units in the last place of a float for |angle| < 1e6, and at most 1e-6 for |angle| < 2^31. A
// larger angle, or one that is not finite, gives NaN for both. Only plain double arithmetic in a
// fixed order is used, so every machine gives the same bits.
void CosSin(float angle, float* cosine, float* sine);

}  // namespace baton::cpu
