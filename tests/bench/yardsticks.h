#pragma once

namespace baton {

// Rates that the machine can reach at present, for comparison with other rates. Each function
// measures five times and returns the best rate.

// Returns the bytes per second that `threads` threads read, when they read 512 MB together.
double ReadRate(int threads);
// Returns the operations per second of fused multiply-adds on the registers of `threads` threads.
double FmaRate(int threads);

}  // namespace baton
