#pragma once

namespace baton {

// What the machine can do now, to hold other rates against: the best of five tries.

// Bytes per second of `threads` threads that read 512 MB together.
double ReadRate(int threads);
// Operations per second of fused multiply-adds on the registers of `threads` threads.
double FmaRate(int threads);

}  // namespace baton
