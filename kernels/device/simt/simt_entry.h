#pragma once

namespace baton::simt {

// What an emulated Kernel::entry points to; made by BATON_KERNEL.
struct SimtEntry {
  void (*body)(const void* params);  // one thread of it
  int max_threads;                   // of a block
  bool checked;  // its loads and stores call out (baton_emulated_kernels' NAME_checked)
};

}  // namespace baton::simt
