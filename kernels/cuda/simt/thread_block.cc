#include "kernels/cuda/simt/thread_block.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cuda/simt/access_checker.h"
#include "kernels/cuda/simt/memory_map.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

namespace baton::simt {
namespace {

constexpr uint32_t kAllLanes = 0xffffffff;
constexpr int kPoison = 0xff;
constexpr size_t kArrayGap = 128;               // bytes that belong to no array, after each
constexpr size_t kMostStaticShared = 48 << 10;  // CUDA's
constexpr size_t kMostArrays = 64;

}  // namespace

ThreadBlock::ThreadBlock(const Kernel& kernel, const LaunchShape& shape, const void* params,
                         const SimtOptions& options, Schedule& schedule, Workspace& workspace)
    : kernel_(kernel),
      shape_(shape),
      params_(params),
      entry_(*static_cast<const SimtEntry*>(kernel.entry)),
      options_(options),
      schedule_(schedule),
      work_(workspace) {
  if (work_.threads.size() < static_cast<size_t>(shape.threads)) {
    work_.threads.resize(shape.threads);
    work_.warps.resize(shape.threads / kWarpLanes);
  }
  // Every array costs its gap and at most 32 + 256 bytes of alignment.
  const size_t bytes = options.max_shared_bytes + kMostArrays * (kArrayGap + 32) + 512;
  if (work_.shared.size() < bytes) work_.shared.resize(bytes);
}

absl::Status ThreadBlock::Run() {
  const int warps = shape_.threads / kWarpLanes;
  for (int i = 0; i < shape_.threads; ++i) {
    Thread& thread = work_.threads[i];
    thread.stack = -1;
    thread.operation = nullptr;
    thread.place = {};
    thread.copies.clear();
    thread.group = 0;
  }
  work_.free_stacks.clear();
  for (int i = shape_.threads; i-- > 0;) work_.free_stacks.push_back(i);
  schedule_.Draw(warps, warp_order_);
  for (int i = 0; i < warps; ++i) {
    work_.warps[i].can_run = kAllLanes;
    work_.warps[i].arrived = 0;
    work_.warps[i].epoch = 0;
    work_.warps[i].descending = schedule_.DrawDescending();
  }
  turn_ = 0;
  at_barrier_ = 0;
  epoch_ = 0;
  returned_ = 0;
  ASAN_POISON_MEMORY_REGION(work_.shared.data(), work_.shared.size());
  arrays_.clear();
  shared_used_ = 0;
  static_shared_ = 0;
  dynamic_ = AddArray(nullptr, "dynamic shared memory", shape_.shared_bytes, 128);

  const Warp& first = work_.warps[warp_order_[0]];
  current.thread = warp_order_[0] * kWarpLanes + (first.descending ? kWarpLanes - 1 : 0);
  Thread& thread = work_.threads[current.thread];
  thread.stack = work_.free_stacks.back();
  work_.free_stacks.pop_back();
  thread.context = work_.stacks.Begin(thread.stack, &RunFiber);
  SwitchFiber(outside_, thread.context);
  ASAN_UNPOISON_MEMORY_REGION(work_.shared.data(), work_.shared.size());
  if (!status_.ok()) work_.stacks.Forget();
  return status_;
}

void ThreadBlock::RunFiber() {
  ThreadBlock& block = *current.block;
  FiberStarted(block.outside_);
  for (;;) {
    block.entry_.body(block.params_);
    block.ThreadReturned();  // and another one begins on this stack
  }
}

void ThreadBlock::ThreadReturned() {
  Thread& self = work_.threads[current.thread];
  work_.warps[current.thread / kWarpLanes].can_run &= ~(1u << current.thread % kWarpLanes);
  self.operation = nullptr;
  const int stack = std::exchange(self.stack, -1);
  if (++returned_ == shape_.threads) SwitchFiber(self.context, outside_);
  const int next = Next();
  current.thread = next;
  Thread& thread = work_.threads[next];
  if (thread.stack < 0) {
    thread.stack = stack;
    thread.context = self.context;
    return;
  }
  work_.free_stacks.push_back(stack);  // used again only after the switch
  SwitchFiber(self.context, thread.context);
}

int ThreadBlock::Next() {
  int lane = current.thread % kWarpLanes;
  int index = current.thread / kWarpLanes;
  if (work_.warps[index].can_run == 0) {
    if (work_.warps[index].arrived != 0) {
      SetError(absl::StrCat("not every lane of warp ", index, " comes to the same collective: ",
                            WhereAre(index * kWarpLanes, kWarpLanes)));
      Abandon();
    }
    while (turn_ < warp_order_.size() && work_.warps[warp_order_[turn_]].can_run == 0) ++turn_;
    if (turn_ == warp_order_.size()) {
      SetError(
          absl::StrCat("not every thread comes to the barrier: ", WhereAre(0, shape_.threads)));
      Abandon();
    }
    index = warp_order_[turn_];
    lane = work_.warps[index].descending ? 0 : kWarpLanes - 1;
  }
  // The nearest lane after this one, around the warp; this one itself comes last.
  const Warp& warp = work_.warps[index];
  lane = warp.descending
             ? (lane + 31 - std::countl_zero(std::rotr(warp.can_run, lane))) % kWarpLanes
             : (lane + 1 + std::countr_zero(std::rotr(warp.can_run, lane + 1))) % kWarpLanes;
  return index * kWarpLanes + lane;
}

void ThreadBlock::Yield() {
  const int next = Next();
  if (next != current.thread) Resume(next);
}

void ThreadBlock::Resume(int next) {
  Thread& self = work_.threads[current.thread];
  Thread& thread = work_.threads[next];
  current.thread = next;
  if (thread.stack < 0) {
    thread.stack = work_.free_stacks.back();
    work_.free_stacks.pop_back();
    thread.context = work_.stacks.Begin(thread.stack, &RunFiber);
  }
  SwitchFiber(self.context, thread.context);
}

void ThreadBlock::SyncThreads(Place place) {
  Thread& self = work_.threads[current.thread];
  self.operation = "SyncThreads";
  self.place = place;
  if (at_barrier_ == 0) barrier_ = place;
  work_.warps[current.thread / kWarpLanes].can_run &= ~(1u << current.thread % kWarpLanes);
  if (!(place == barrier_)) {
    SetError(
        absl::StrCat("not every thread comes to the same barrier: ", WhereAre(0, shape_.threads)));
    Abandon();
  }
  if (++at_barrier_ == shape_.threads) {
    at_barrier_ = 0;
    CountEpoch(epoch_);
    turn_ = 0;
    schedule_.Draw(shape_.threads / kWarpLanes, warp_order_);
    for (size_t i = 0; i < warp_order_.size(); ++i) {
      work_.warps[i].can_run = kAllLanes;
      work_.warps[i].epoch = 0;
      work_.warps[i].descending = schedule_.DrawDescending();
    }
    // The first in the new order, whoever came last.
    const Warp& first = work_.warps[warp_order_[0]];
    const int next = warp_order_[0] * kWarpLanes + (first.descending ? kWarpLanes - 1 : 0);
    if (next != current.thread) Resume(next);
    return;
  }
  Yield();
}

void ThreadBlock::SyncWarp(Place place) {
  Meet("SyncWarp", place, nullptr, [](void* const*) {
    ThreadBlock& block = *current.block;
    block.CountEpoch(block.work_.warps[current.thread / kWarpLanes].epoch);
  });
}

void ThreadBlock::CountEpoch(uint32_t& epoch) {
  if (++epoch > 0xffff && checker_ != nullptr) {
    SetError("more than 65,535 barriers in a row can't be checked");
    Abandon();
  }
}

void ThreadBlock::Meet(const char* operation, Place place, void* post,
                       void (*compute)(void* const* posts)) {
  const int lane = current.thread % kWarpLanes;
  Thread& self = work_.threads[current.thread];
  Warp& warp = work_.warps[current.thread / kWarpLanes];
  self.operation = operation;
  self.place = place;
  warp.can_run &= ~(1u << lane);
  if (warp.arrived == 0) {
    warp.operation = operation;
    warp.place = place;
  } else if (!(place == warp.place) ||
             (operation != warp.operation && std::strcmp(operation, warp.operation) != 0)) {
    SetError(absl::StrCat(
        "not every lane of warp ", current.thread / kWarpLanes,
        " comes to the same collective: ", WhereAre(current.thread - lane, kWarpLanes)));
    Abandon();
  }
  warp.arrived |= 1u << lane;
  warp.posts[lane] = post;
  if (warp.arrived == kAllLanes) {
    compute(warp.posts.data());
    warp.arrived = 0;
    warp.can_run = kAllLanes;
    return;
  }
  Yield();
}

void ThreadBlock::AddCopy(void* to, const void* from, bool valid, Place place, const void* code) {
  const char* wrong =
      reinterpret_cast<uintptr_t>(to) % 16 != 0              ? "a shared address not aligned to 16"
      : valid && reinterpret_cast<uintptr_t>(from) % 16 != 0 ? "a global address not aligned to 16"
      : !InOneArray(to, 16)                                  ? "bytes outside shared memory"
      : valid && options_.memory != nullptr && !options_.memory->Contains(from, 16)
          ? "bytes outside global memory"
          : nullptr;
  if (wrong != nullptr) {
    SetError(absl::StrCat("CopyAsync16 (", ToString(place), ") is given ", wrong));
    Abandon();
  }
  if (checker_ != nullptr) {
    if (valid) checker_->Access(from, 16, 16, false, code);
    checker_->CopyBegins(to, code);
  }
  Thread& self = work_.threads[current.thread];
  Copy copy{to, from, valid, false, self.group};
  if (!schedule_.copies_land_late()) Land(copy);
  self.copies.push_back(copy);
}

void ThreadBlock::Land(Copy& copy) {
  if (copy.landed) return;
  copy.landed = true;
  if (copy.valid) {
    std::memcpy(copy.to, copy.from, 16);
  } else {
    std::memset(copy.to, 0, 16);
  }
}

void ThreadBlock::CommitCopies() { ++work_.threads[current.thread].group; }

void ThreadBlock::WaitForCopies(int groups) {
  Thread& self = work_.threads[current.thread];
  auto copy = self.copies.begin();
  for (; copy != self.copies.end() && copy->group + groups < self.group; ++copy) {
    Land(*copy);
    if (checker_ != nullptr) checker_->CopyEnds(copy->to);
  }
  self.copies.erase(self.copies.begin(), copy);
}

ThreadBlock::Array ThreadBlock::AddArray(const void* key, const char* name, size_t bytes,
                                         size_t align) {
  // At an odd multiple: nothing may depend on a better alignment.
  uintptr_t base = reinterpret_cast<uintptr_t>(work_.shared.data()) + shared_used_;
  base = (base + align) / (2 * align) * (2 * align) + align;
  auto* at = reinterpret_cast<std::byte*>(base);
  shared_used_ = at - work_.shared.data() + bytes + kArrayGap;
  ASAN_UNPOISON_MEMORY_REGION(at, bytes);
  std::memset(at, kPoison, bytes);
  return {key, name, at, bytes};
}

std::byte* ThreadBlock::SharedArray(const void* key, const char* name, size_t bytes, Place place) {
  for (const Array& array : arrays_) {
    if (array.key == key) return array.base;
  }
  static_shared_ += bytes;
  if (static_shared_ > kMostStaticShared ||
      static_shared_ + shape_.shared_bytes > options_.max_shared_bytes ||
      arrays_.size() + 1 == kMostArrays) {
    SetError(absl::StrCat("BATON_SHARED ", name, " (", ToString(place), ") of ", bytes,
                          " bytes makes ", static_shared_, " bytes in ", arrays_.size() + 1,
                          " arrays; a block may have ", kMostStaticShared, " and, with ",
                          shape_.shared_bytes, " dynamic ones, ", options_.max_shared_bytes));
    Abandon();
  }
  arrays_.push_back(AddArray(key, name, bytes, 16));
  return arrays_.back().base;
}

bool ThreadBlock::InOneArray(const void* at, size_t bytes) const {
  const auto holds = [&](const Array& array) {
    const uintptr_t offset =
        reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(array.base);
    return offset < array.bytes && bytes <= array.bytes - offset;
  };
  if (holds(dynamic_)) return true;
  for (const Array& array : arrays_) {
    if (holds(array)) return true;
  }
  return false;
}

bool ThreadBlock::InShared(const void* at) const {
  return reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(work_.shared.data()) <
         work_.shared.size();
}

std::string ThreadBlock::NameInShared(const void* at) const {
  const Array* nearest = &dynamic_;  // which is the lowest
  for (const Array& array : arrays_) {
    if (array.base <= at) nearest = &array;
  }
  return absl::StrCat("'", nearest->name, "' + ",
                      reinterpret_cast<intptr_t>(at) - reinterpret_cast<intptr_t>(nearest->base));
}

std::string ThreadBlock::WhereAre(int first, int count) const {
  // Runs of threads that wait at the same place, in ascending order; those that run are left out.
  std::string text;
  for (int i = first; i < first + count;) {
    const auto where = [this](int thread) -> std::string {
      const Warp& warp = work_.warps[thread / kWarpLanes];
      if ((warp.can_run >> thread % kWarpLanes & 1) != 0) return "";
      const Thread& t = work_.threads[thread];
      if (t.operation == nullptr) return "returned";
      return absl::StrCat("at ", t.operation, " (", ToString(t.place), ")");
    };
    const std::string place = where(i);
    int end = i + 1;
    while (end < first + count && where(end) == place) ++end;
    if (!place.empty()) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", end - i == 1 ? "thread " : "threads ", i,
                      end - i == 1 ? "" : absl::StrCat("-", end - 1), " ", place);
    }
    i = end;
  }
  return text;
}

void ThreadBlock::SetError(absl::string_view message) {
  status_ = absl::InternalError(absl::StrCat("kernel ", kernel_.name, ", block (", current.block_x,
                                             ", ", current.block_y, ", ", current.block_z,
                                             "), thread ", current.thread, ": ", message));
}

void ThreadBlock::Abandon() {
  FiberContext nowhere;
  SwitchFiber(nowhere, outside_);
  __builtin_unreachable();
}

}  // namespace baton::simt
