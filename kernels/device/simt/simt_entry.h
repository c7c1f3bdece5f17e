#pragma once

namespace baton::simt {

// Kernel::entry of an emulated kernel points to a SimtEntry, which BATON_KERNEL defines.
struct SimtEntry {
  void (*body)(const void* params);  // runs one thread of the kernel
  int max_threads;                   // max threads per block
  bool checked;  // its loads and stores call the checker (NAME_checked of baton_emulated_kernels)
};

}  // namespace baton::simt
