#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace baton::simt {

// The shared memory of one block after another: arrays at fixed places, filled with 0xff (NaN in
// every float type) and with bytes between them that belong to none.
class SharedMemory {
 public:
  // Of the next block, which has this many bytes of dynamic shared memory and may have so many in
  // all.
  void BeginBlock(size_t dynamic_bytes, size_t most_bytes);
  void EndBlock();

  // The array of the declaration that `key` stands for, made by the first call. Aligned to 16 and
  // no better. Null where it would be too much; then TooMuch says what would.
  std::byte* Array(const void* key, const char* name, size_t bytes);
  std::string TooMuch(const char* name, size_t bytes) const;
  // Aligned to 128 and no better.
  std::byte* dynamic() const { return arrays_[0].base; }

  // All of these bytes are of one array.
  bool InOneArray(const void* at, size_t bytes) const;
  // This one is shared memory, of an array or between two.
  bool Contains(const void* at) const {
    return reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(memory_.data()) <
           memory_.size();
  }
  // "'tile' + 24": the array that this byte is in, or the nearest before it.
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
  std::vector<Declared> arrays_;  // the dynamic one first
  size_t most_bytes_ = 0;
  size_t used_ = 0;          // of memory_, with the gaps
  size_t static_bytes_ = 0;  // of declared arrays
};

}  // namespace baton::simt
