#include "kernels/device/simt/memory_map.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::simt {
namespace {

uintptr_t NumberOf(const void* at) { return reinterpret_cast<uintptr_t>(at); }

// Returns a word in which bits [from, from + count) are set.
uint64_t Bits(size_t from, size_t count) {
  return (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << from;
}

}  // namespace

void MemoryMap::Region::MarkWritten(size_t offset, size_t bytes) {
  if (written_.empty()) return;
  for (const size_t end = offset + bytes; offset < end;) {
    const size_t count = std::min(end - offset, 64 - offset % 64);
    written_[offset / 64] |= Bits(offset % 64, count);
    offset += count;
  }
}

void MemoryMap::Region::MarkUnwritten(size_t offset, size_t bytes) {
  if (written_.empty()) return;
  for (const size_t end = offset + bytes; offset < end;) {
    const size_t count = std::min(end - offset, 64 - offset % 64);
    written_[offset / 64] &= ~Bits(offset % 64, count);
    offset += count;
  }
}

bool MemoryMap::Region::Written(size_t offset, size_t bytes) const {
  if (written_.empty()) return true;
  for (const size_t end = offset + bytes; offset < end;) {
    const size_t count = std::min(end - offset, 64 - offset % 64);
    if ((~written_[offset / 64] & Bits(offset % 64, count)) != 0) return false;
    offset += count;
  }
  return true;
}

void MemoryMap::Add(const void* base, size_t bytes, bool written) {
  const auto next = regions_.lower_bound(NumberOf(base));
  BATON_CHECK((next == regions_.end() || NumberOf(base) + bytes <= next->first) &&
              (next == regions_.begin() ||
               std::prev(next)->first + std::prev(next)->second.bytes_ <= NumberOf(base)))
      << "regions overlap";
  Region& region = regions_[NumberOf(base)];
  region.base_ = static_cast<const std::byte*>(base);
  region.bytes_ = bytes;
  if (!written) region.written_.resize((bytes + 63) / 64);
}

void MemoryMap::Remove(const void* base) {
  latest_ = nullptr;
  BATON_CHECK(regions_.erase(NumberOf(base)) == 1) << "no region begins at " << base;
}

void MemoryMap::MarkWritten(const void* at, size_t bytes) {
  const uintptr_t end = NumberOf(at) + bytes;
  auto region = regions_.upper_bound(NumberOf(at));
  if (region != regions_.begin()) --region;
  for (; region != regions_.end() && region->first < end; ++region) {
    const uintptr_t from = std::max(region->first, NumberOf(at));
    const uintptr_t to = std::min(region->first + region->second.bytes_, end);
    if (from < to) region->second.MarkWritten(from - region->first, to - from);
  }
}

void MemoryMap::MarkUnwritten(const void* at, size_t bytes) {
  if (Region* const region = Find(at); region != nullptr) {
    region->MarkUnwritten(NumberOf(at) - NumberOf(region->base()), bytes);
  }
}

bool MemoryMap::Written(const void* at, size_t bytes) {
  const Region* const region = Find(at);
  return region == nullptr || region->Written(NumberOf(at) - NumberOf(region->base()), bytes);
}

void MemoryMap::CopyWritten(const void* to, const void* from, size_t bytes) {
  if (Written(from, bytes)) return MarkWritten(to, bytes);
  for (size_t i = 0; i < bytes; ++i) {
    const std::byte* const byte = static_cast<const std::byte*>(to) + i;
    if (Written(static_cast<const std::byte*>(from) + i, 1)) {
      MarkWritten(byte, 1);
    } else {
      MarkUnwritten(byte, 1);
    }
  }
}

MemoryMap::Region* MemoryMap::Find(const void* at) {
  const auto holds = [&](const Region& region) {
    return NumberOf(at) - NumberOf(region.base_) < region.bytes_;
  };
  if (latest_ != nullptr && holds(*latest_)) return latest_;
  auto after = regions_.upper_bound(NumberOf(at));
  if (after == regions_.begin() || !holds(std::prev(after)->second)) return nullptr;
  return latest_ = &std::prev(after)->second;
}

bool MemoryMap::Contains(const void* at, size_t bytes) {
  const Region* region = Find(at);
  return region != nullptr && NumberOf(at) - NumberOf(region->base()) + bytes <= region->bytes();
}

}  // namespace baton::simt
