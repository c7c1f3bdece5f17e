#include "kernels/device/simt/shared_memory.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

namespace baton::simt {
namespace {

constexpr int kPoison = 0xff;
constexpr size_t kGap = 128;                  // bytes after each array
constexpr size_t kMaxStaticBytes = 48 << 10;  // limit of CUDA
constexpr size_t kMaxArrays = 64;

uintptr_t AddressNumber(const void* at) { return reinterpret_cast<uintptr_t>(at); }

}  // namespace

void SharedMemory::BeginBlock(size_t dynamic_bytes, size_t max_bytes) {
  // Besides its bytes, each array needs the gap behind it and up to 32 bytes for its alignment. The
  // dynamic array needs up to 256 bytes for its alignment.
  const size_t bytes = max_bytes + kMaxArrays * (kGap + 32) + 256;
  if (memory_.size() < bytes) memory_.resize(bytes);
  max_bytes_ = max_bytes;
  used_ = 0;
  static_bytes_ = 0;
  arrays_.clear();
  ASAN_POISON_MEMORY_REGION(memory_.data(), memory_.size());
  Add(nullptr, "dynamic shared memory", dynamic_bytes, 128);
}

void SharedMemory::EndBlock() { ASAN_UNPOISON_MEMORY_REGION(memory_.data(), memory_.size()); }

std::byte* SharedMemory::Add(const void* key, const char* name, size_t bytes, size_t align) {
  // Places the array at an odd multiple of the alignment, so that no kernel can depend on a better
  // alignment.
  const uintptr_t free = AddressNumber(memory_.data()) + used_;
  const uintptr_t address = (free + align) / (2 * align) * (2 * align) + align;
  auto* base = reinterpret_cast<std::byte*>(address);
  used_ = base - memory_.data() + bytes + kGap;
  ASAN_UNPOISON_MEMORY_REGION(base, bytes);
  std::memset(base, kPoison, bytes);
  arrays_.push_back({key, name, base, bytes});
  return base;
}

std::byte* SharedMemory::Array(const void* key, const char* name, size_t bytes) {
  for (const Declared& array : arrays_) {
    if (array.key == key) return array.base;
  }
  if (static_bytes_ + bytes > kMaxStaticBytes ||
      static_bytes_ + bytes + arrays_[0].bytes > max_bytes_ || arrays_.size() == kMaxArrays) {
    return nullptr;
  }
  static_bytes_ += bytes;
  return Add(key, name, bytes, 16);
}

std::string SharedMemory::TooMuch(const char* name, size_t bytes) const {
  return absl::StrCat(name, " of ", bytes, " bytes makes ", static_bytes_ + bytes, " bytes in ",
                      arrays_.size(), " arrays; a block may have ", kMaxStaticBytes, " bytes in ",
                      kMaxArrays - 1, ", and with ", arrays_[0].bytes, " dynamic ones ",
                      max_bytes_);
}

bool SharedMemory::InOneArray(const void* at, size_t bytes) const {
  for (const Declared& array : arrays_) {
    const uintptr_t offset = AddressNumber(at) - AddressNumber(array.base);
    if (offset < array.bytes && bytes <= array.bytes - offset) return true;
  }
  return false;
}

std::string SharedMemory::Name(const void* at) const {
  const Declared* nearest = &arrays_[0];  // the lowest address: arrays are in ascending order
  for (const Declared& array : arrays_) {
    if (array.base <= at) nearest = &array;
  }
  return absl::StrCat("'", nearest->name, "' + ",
                      static_cast<intptr_t>(AddressNumber(at) - AddressNumber(nearest->base)));
}

}  // namespace baton::simt
