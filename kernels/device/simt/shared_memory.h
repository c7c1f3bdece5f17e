#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace baton::simt {

// Shared memory for one block after another. An array does not move while a block runs, and begins
// filled with 0xff (NaN in every float type). Between two arrays are bytes that belong to neither.
class SharedMemory {
 public:
  // Prepares the memory for the next block, which has `dynamic_bytes` of dynamic shared memory and
  // may use at most `max_bytes` in all.
  void BeginBlock(size_t dynamic_bytes, size_t max_bytes);
  void EndBlock();

  // Returns the block's shared array of one declaration in the kernel; `key` identifies the
  // declaration. The first call of a block makes the array. It is aligned to 16 but not to 32.
  // Returns null if the block would exceed a limit; TooMuch() then says which.
  std::byte* Array(const void* key, const char* name, size_t bytes);
  std::string TooMuch(const char* name, size_t bytes) const;
  // Returns the dynamic array, which is aligned to 128 but not to 256.
  std::byte* dynamic() const { return arrays_[0].base; }

  // Returns true if the `bytes` bytes from `at` on lie in one array.
  bool InOneArray(const void* at, size_t bytes) const;
  // Returns true if the byte is in shared memory, in an array or between two.
  bool Contains(const void* at) const {
    return reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(memory_.data()) <
           memory_.size();
  }
  // Returns text such as "'tile' + 24", which names the array that contains the byte, or else the
  // nearest array before it.
  std::string Name(const void* at) const;

 private:
  struct Declared {
    const void* key;
    const char* name;
    std::byte* base;
    size_t bytes;
  };

  std::byte* Add(const void* key, const char* name, size_t bytes, size_t align);

  std::vector<std::byte> memory_;
  std::vector<Declared> arrays_;  // the dynamic array comes first
  size_t max_bytes_ = 0;
  size_t used_ = 0;          // bytes of memory_ in use, with the gaps
  size_t static_bytes_ = 0;  // bytes of declared arrays
};

}  // namespace baton::simt
