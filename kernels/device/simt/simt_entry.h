#pragma once

namespace baton::simt {

// The target of an emulated Kernel::entry. BATON_KERNEL makes it.
struct SimtEntry {
  void (*body)(const void* params);  // runs one thread of the kernel
  int max_threads;                   // max threads per block
  bool checked;  // its loads and stores call the checker (NAME_checked of baton_emulated_kernels)
};

}  // namespace baton::simt
