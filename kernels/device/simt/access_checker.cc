#include "kernels/device/simt/access_checker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/device/simt/device_calls.h"
#include "kernels/device/simt/place.h"
#include "kernels/device/simt/thread_block.h"

// Start and end of this program's image in memory. The linker defines both symbols.
extern "C" const char __executable_start[], _end[];

namespace baton::simt {
namespace {

uintptr_t Address(const void* at) { return reinterpret_cast<uintptr_t>(at); }
bool Within(const void* at, const void* base, size_t bytes) {
  return Address(at) - Address(base) < bytes;
}

// Layout of a stamp, from the top bit: a copy in flight (1 bit), block + 1 (19), barriers of the
// block so far (16), warp (6), the warp's SyncWarps since the last barrier (16), lane (6). If all
// bits of the field block, warp or lane are ones, the stamp stands for several blocks, warps or
// lanes. These agree in the fields that come before it in this list.
constexpr int kLane = 0, kWarpEpoch = 6, kWarp = 22, kEpoch = 28, kBlock = 44;
constexpr uint64_t kInFlight = uint64_t{1} << 63;
constexpr uint64_t kSeveral = 63, kSeveralBlocks = (1 << 19) - 1;
constexpr uint64_t kMaxEpochs = 0xffff;

uint64_t BlockOf(uint64_t stamp) { return stamp >> kBlock & kSeveralBlocks; }
uint64_t EpochOf(uint64_t stamp) { return stamp >> kEpoch & 0xffff; }
uint64_t WarpOf(uint64_t stamp) { return stamp >> kWarp & 63; }
uint64_t WarpEpochOf(uint64_t stamp) { return stamp >> kWarpEpoch & 0xffff; }
uint64_t LaneOf(uint64_t stamp) { return stamp >> kLane & 63; }

// A stamp stands for one or several accesses: it holds their block, warp and lane, and the number
// of barriers before them. Returns true if an access now is ordered after all accesses of the stamp
// `before`.
inline bool Ordered(uint64_t before, uint64_t now) {
  if (BlockOf(before) != BlockOf(now)) return false;
  if (EpochOf(before) != EpochOf(now)) return true;
  if (WarpOf(before) != WarpOf(now)) return false;
  return WarpEpochOf(before) != WarpEpochOf(now) || LaneOf(before) == LaneOf(now);
}

// Combines two stamps, which stand for accesses: `before` for earlier reads, `now` for a new read.
// An access that is ordered after the result is ordered after all of these reads.
inline uint64_t Merged(uint64_t before, uint64_t now) {
  if (before == 0 || Ordered(before, now)) return now;
  if (BlockOf(before) != BlockOf(now)) return kSeveralBlocks << kBlock;
  if (WarpOf(before) != WarpOf(now)) return now | kSeveral << kWarp;
  return now | kSeveral << kLane;
}

}  // namespace

AccessChecker::AccessChecker(ThreadBlock& block, const LaunchShape& shape, const void* params,
                             size_t params_bytes, const FiberStacks& stacks, MemoryMap* memory)
    : block_(block),
      shape_(shape),
      params_(params),
      params_bytes_(params_bytes),
      stacks_(stacks),
      memory_(memory) {}

void AccessChecker::Access(const void* at, size_t bytes, size_t align, bool write,
                           const void* code) {
  if (Within(at, &current, sizeof(current)) || bytes == 0) return;
  Judge({at, bytes, write, code}, align);
}

void AccessChecker::Add(const void* at, size_t bytes, const void* code) {
  Judge({at, bytes, true, code, true}, bytes);
}

inline void AccessChecker::Judge(const Fault& access, size_t align) {
  const auto [at, bytes, write, code, add] = access;
  const char* problem = nullptr;
  if (const int stack = stacks_.Find(at); stack >= 0) {
    if (stack == block_.stack()) return;
    problem = "is of another thread's stack";
  } else if (Address(at) % align != 0) {
    problem = "is misaligned";
  } else if (block_.shared().Contains(at)) {
    if (block_.shared().InOneArray(at, bytes)) return Check(access, true, false);
    problem = "is outside every shared array";
  } else if (Within(at, params_, params_bytes_)) {
    if (!write) return;
    problem = "is of the parameters";
  } else if (memory_ == nullptr) {
    return Check(access, false, false);
  } else if (MemoryMap::Region* region = memory_->Find(at); region != nullptr) {
    const size_t offset = Address(at) - Address(region->base());
    if (offset + bytes > region->bytes()) {
      problem = "goes beyond the end of its allocation";
    } else if (write && !add) {
      region->MarkWritten(offset, bytes);
      return Check(access, false, false);
    } else if (!region->Written(offset, bytes)) {
      problem = "is of bytes that nobody has written";
    } else {
      return Check(access, false, false);
    }
  } else if (Within(at, __executable_start, _end - __executable_start)) {
    if (!write) return;  // reads a constant
    problem = "is of the program itself";
  } else {
    problem = "is outside every allocation";
  }
  SetError(access, problem);
  block_.Abandon();
}

void AccessChecker::CopyBegins(const void* to, const void* code) {
  Check({to, 16, true, code}, true, true);
}

void AccessChecker::CopyEnds(const void* to) {
  // Marks the 16 copied bytes as written by the current thread, now. The bytes are aligned to 16,
  // so one Shadow holds the records of all of them.
  Shadow& shadow = ShadowOf(Address(to) / Shadow::kBytes);
  std::fill_n(&shadow.written[Address(to) % Shadow::kBytes], 16, Now());
}

void AccessChecker::BeginBlock() {
  block_stamp_ = ((uint64_t(current.block_z) * shape_.grid_y + current.block_y) * shape_.grid_x +
                  current.block_x + 1)
                 << kBlock;
}

inline AccessChecker::Stamp AccessChecker::Now() const {
  return block_stamp_ | uint64_t{block_.epoch()} << kEpoch |
         uint64_t(current.thread / kWarpLanes) << kWarp |
         uint64_t{block_.warp_epoch()} << kWarpEpoch | uint64_t(current.thread % kWarpLanes);
}

inline AccessChecker::Shadow& AccessChecker::ShadowOf(uintptr_t page) {
  Recent& recent = recent_[page % recent_.size()];
  if (recent.page != page || recent.shadow == nullptr) {
    std::unique_ptr<Shadow>& shadow = shadows_[page];
    if (shadow == nullptr) shadow = std::make_unique<Shadow>();
    recent = {page, shadow.get()};
  }
  return *recent.shadow;
}

void AccessChecker::Check(const Fault& access, bool shared, bool in_flight) {
  const Stamp now = Now();
  const auto code = static_cast<uint32_t>(Address(access.code) - Address(__executable_start));
  uintptr_t address = Address(access.at);
  for (const uintptr_t end = address + access.bytes; address < end;) {
    Shadow& shadow = ShadowOf(address / Shadow::kBytes);
    const size_t first = address % Shadow::kBytes;
    const size_t last = std::min<size_t>(first + (end - address), Shadow::kBytes);
    for (size_t i = first; i < last; ++i) {
      Stamp& written = shadow.written[i];
      Stamp& read = shadow.read[i];
      Stamp& added = shadow.added[i / 4];
      // Skips the checks if this thread has read the byte since its last SyncThreads or SyncWarp.
      // That earlier read was checked, and each write after that read was checked against it.
      if (!access.write && read == now && (written & kInFlight) == 0) continue;
      // A stamp stands for an earlier access. In shared memory, accesses of an earlier thread block
      // no longer count.
      if (shared && BlockOf(written) != BlockOf(now)) written = 0;
      if (shared && BlockOf(read) != BlockOf(now)) read = 0;
      if (shared && BlockOf(added) != BlockOf(now)) added = 0;
      if (written != 0 && ((written & kInFlight) != 0 || !Ordered(written, now))) {
        FailAfter(access, "write", written, shadow.written_at[i / 4]);
      }
      if (!access.add && added != 0 && !Ordered(added, now)) {
        FailAfter(access, "add", added, shadow.added_at[i / 4]);
      }
      if (access.write && read != 0 && !Ordered(read, now)) {
        FailAfter(access, "read", read, shadow.read_at[i / 4]);
      }
      if (shared && written == 0 && (access.add || !access.write)) {
        SetError(access, "is of bytes that nobody has written");
        block_.Abandon();
      }
      if (access.add) {
        if (i % 4 == 3) added = Merged(added, now);
      } else if (access.write) {
        written = in_flight ? now | kInFlight : now;
      } else {
        read = Merged(read, now);
      }
    }
    auto& at = access.add ? shadow.added_at : access.write ? shadow.written_at : shadow.read_at;
    for (size_t word = first / 4; word <= (last - 1) / 4; ++word) at[word] = code;
    address += last - first;
  }
}

void AccessChecker::FailAfter(const Fault& access, const char* other, Stamp stamp, uint32_t code) {
  const void* at = reinterpret_cast<const void*>(Address(__executable_start) + code);
  SetError(access, absl::StrCat((stamp & kInFlight) != 0
                                    ? "is of data that a copy may still bring, begun by "
                                    : absl::StrCat("races with the ", other, " by "),
                                Who(stamp), " at ", PlaceOfCode(at)));
  block_.Abandon();
}

std::string AccessChecker::Who(Stamp stamp) const {
  const uint64_t block = BlockOf(stamp);
  if (block == kSeveralBlocks) return "several blocks";
  std::string who;
  if (WarpOf(stamp) == kSeveral) {
    who = "several warps";
  } else if (LaneOf(stamp) == kSeveral) {
    who = absl::StrCat("several lanes of warp ", WarpOf(stamp));
  } else {
    who = absl::StrCat("thread ", WarpOf(stamp) * kWarpLanes + LaneOf(stamp));
  }
  if (block != BlockOf(Now())) {
    const uint64_t x = shape_.grid_x, y = shape_.grid_y;
    absl::StrAppend(&who, " of block (", (block - 1) % x, ", ", (block - 1) / x % y, ", ",
                    (block - 1) / x / y, ")");
  }
  return who;
}

std::string AccessChecker::Name(const void* at) const {
  if (block_.shared().Contains(at)) return block_.shared().Name(at);
  if (Within(at, params_, params_bytes_)) {
    return absl::StrCat("parameters + ", Address(at) - Address(params_));
  }
  const MemoryMap::Region* region = memory_ == nullptr ? nullptr : memory_->Find(at);
  const std::string address = absl::StrCat("0x", absl::Hex(Address(at)));
  if (region == nullptr) return address;
  return absl::StrCat(address, " (byte ", Address(at) - Address(region->base()), " of ",
                      region->bytes(), " allocated)");
}

void AccessChecker::SetError(const Fault& access, absl::string_view problem) const {
  block_.SetError(absl::StrCat(access.add     ? "add"
                               : access.write ? "write"
                                              : "read",
                               " of ", access.bytes, " bytes at ", Name(access.at), " at ",
                               PlaceOfCode(access.code), " ", problem));
}

}  // namespace baton::simt
