#pragma once

namespace baton {

// Rates that the machine can reach at present, for comparison with other rates. Each function
// measures several times and returns the best rate.

// Returns the bytes per second that `threads` threads read, when they read 512 MB together: each one
// part after another, or four parts of its memory at the same time.
double ReadRate(int threads);
// Returns the operations per second of fused multiply-adds on the registers of `threads` threads.
double FmaRate(int threads);

}  // namespace baton
