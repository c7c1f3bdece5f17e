#include "kernels/device/simt/thread_block.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/simt/access_checker.h"
#include "kernels/device/simt/memory_map.h"

namespace baton::simt {
namespace {

constexpr uint32_t kAllLanes = 0xffffffff;

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
  work_.free_stacks.clear();
  for (int i = shape.threads; i-- > 0;) {
    work_.threads[i].stack = -1;
    work_.free_stacks.push_back(i);
  }
}

absl::Status ThreadBlock::Run() {
  for (int i = 0; i < shape_.threads / kWarpLanes; ++i) work_.warps[i].arrived = 0;
  epoch_ = 0;
  returned_ = 0;
  StartBarrierPhase();
  work_.shared.BeginBlock(shape_.shared_bytes, options_.max_shared_bytes);
  if (checker_ != nullptr) checker_->BeginBlock();

  current.thread = FirstOf(warp_order_[0]);
  Thread& thread = work_.threads[current.thread];
  Begin(thread, TakeStack());
  thread.context = work_.stacks.Begin(thread.stack, &RunFiber);
  SwitchFiber(outside_, thread.context);
  work_.shared.EndBlock();
  return status_;
}

void ThreadBlock::StartBarrierPhase() {
  const int warps = shape_.threads / kWarpLanes;
  at_barrier_ = 0;
  turn_ = 0;
  schedule_.Shuffle(warps, warp_order_);
  for (int i = 0; i < warps; ++i) {
    work_.warps[i].can_run = kAllLanes;
    work_.warps[i].epoch = 0;
    work_.warps[i].descending = schedule_.ShuffleDescending();
  }
}

void ThreadBlock::RunFiber() {
  ThreadBlock& block = *current.block;
  FiberStarted(block.outside_);
  for (;;) {
    block.entry_.body(block.params_);
    block.ThreadReturned();  // the next thread begins on this stack
  }
}

void ThreadBlock::ThreadReturned() {
  Thread& self = work_.threads[current.thread];
  work_.warps[current.thread / kWarpLanes].can_run &= ~(1u << current.thread % kWarpLanes);
  self.operation = nullptr;
  const int stack = std::exchange(self.stack, -1);
  if (++returned_ == shape_.threads) {
    work_.free_stacks.push_back(stack);
    SwitchFiber(self.context, outside_);
  }
  current.thread = Next();
  Thread& next = work_.threads[current.thread];
  if (next.stack < 0) {
    next.context = self.context;  // tells the address sanitizer which stack the fiber runs on
    Begin(next, stack);
    return;
  }
  work_.free_stacks.push_back(stack);  // reused only after the switch to `next`
  SwitchFiber(self.context, next.context);
}

void ThreadBlock::Begin(Thread& thread, int stack) {
  thread.stack = stack;
  thread.place = {};
  thread.group = 0;
  thread.copies.clear();
}

int ThreadBlock::TakeStack() {
  const int stack = work_.free_stacks.back();
  work_.free_stacks.pop_back();
  return stack;
}

// Returns the nearest lane after `lane`, going around the warp, that can run. `lane` itself comes
// last.
inline int ThreadBlock::LaneAfter(const Warp& warp, int lane) {
  return warp.descending
             ? (lane + 31 - std::countl_zero(std::rotr(warp.can_run, lane))) % kWarpLanes
             : (lane + 1 + std::countr_zero(std::rotr(warp.can_run, lane + 1))) % kWarpLanes;
}

int ThreadBlock::FirstOf(int warp) const {
  const Warp& w = work_.warps[warp];
  return warp * kWarpLanes + LaneAfter(w, w.descending ? 0 : kWarpLanes - 1);
}

inline int ThreadBlock::Next() {
  const int thread = current.thread;
  const Warp& warp = work_.warps[thread / kWarpLanes];
  if (warp.can_run == 0) return NextWarp();
  return thread / kWarpLanes * kWarpLanes + LaneAfter(warp, thread % kWarpLanes);
}

int ThreadBlock::NextWarp() {
  const int own = current.thread / kWarpLanes;
  if (work_.warps[own].arrived != 0) FailInWarp(own);
  while (turn_ < warp_order_.size() && work_.warps[warp_order_[turn_]].can_run == 0) ++turn_;
  if (turn_ == warp_order_.size()) FailAtBarrier();
  return FirstOf(warp_order_[turn_]);
}

inline void ThreadBlock::Resume(int thread) {
  Thread& self = work_.threads[current.thread];
  Thread& next = work_.threads[thread];
  current.thread = thread;
  if (next.stack < 0) {
    Begin(next, TakeStack());
    next.context = work_.stacks.Begin(next.stack, &RunFiber);
  }
  SwitchFiber(self.context, next.context);
}

void ThreadBlock::SyncThreads(Place place) {
  const int thread = current.thread;
  Thread& self = work_.threads[thread];
  self.operation = "SyncThreads";
  self.place = place;
  if (at_barrier_ == 0) barrier_ = place;
  work_.warps[thread / kWarpLanes].can_run &= ~(1u << thread % kWarpLanes);
  if (!(place == barrier_)) FailAtBarrier();
  if (++at_barrier_ < shape_.threads) return Resume(Next());
  CountEpoch(epoch_);
  StartBarrierPhase();
  // All threads have come to the barrier, and the order of the warps is a new one. The first thread
  // in that order runs next, not the thread that came last.
  const int first = FirstOf(warp_order_[0]);
  if (first != thread) Resume(first);
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
  const int thread = current.thread;
  const uint32_t lane = 1u << thread % kWarpLanes;
  Thread& self = work_.threads[thread];
  Warp& warp = work_.warps[thread / kWarpLanes];
  self.operation = operation;
  self.place = place;
  warp.can_run &= ~lane;
  if (warp.arrived == 0) {
    warp.operation = operation;
    warp.place = place;
  } else if (!(place == warp.place) ||
             (operation != warp.operation && std::strcmp(operation, warp.operation) != 0)) {
    FailInWarp(thread / kWarpLanes);
  }
  warp.arrived |= lane;
  warp.posts[thread % kWarpLanes] = post;
  if (warp.arrived != kAllLanes) return Resume(Next());
  compute(warp.posts.data());
  if (options_.collectives != nullptr) ++(*options_.collectives)[operation];
  warp.arrived = 0;
  warp.can_run = kAllLanes;
}

void ThreadBlock::AddCopy(void* to, const void* from, bool valid, Place place, const void* code) {
  const char* wrong =
      reinterpret_cast<uintptr_t>(to) % 16 != 0              ? "a shared address not aligned to 16"
      : valid && reinterpret_cast<uintptr_t>(from) % 16 != 0 ? "a global address not aligned to 16"
      : !work_.shared.InOneArray(to, 16)                     ? "bytes outside shared memory"
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
  Copy copy{to, from, valid, false, self.group, place, {}};
  if (valid) std::memcpy(copy.source.data(), from, 16);
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
    if (copy->valid && std::memcmp(copy->source.data(), copy->from, 16) != 0) {
      SetError(absl::StrCat("CopyAsync16 (", ToString(copy->place),
                            "): its source was written before its wait"));
      Abandon();
    }
    if (checker_ != nullptr) checker_->CopyEnds(copy->to);
  }
  self.copies.erase(self.copies.begin(), copy);
}

void* ThreadBlock::SharedArray(const void* key, const char* name, size_t bytes, Place place) {
  std::byte* array = work_.shared.Array(key, name, bytes);
  if (array == nullptr) {
    SetError(
        absl::StrCat("BATON_SHARED (", ToString(place), ") ", work_.shared.TooMuch(name, bytes)));
    Abandon();
  }
  return array;
}

void ThreadBlock::FailAtBarrier() {
  SetError(
      absl::StrCat("not every thread comes to the same barrier: ", WhereAre(0, shape_.threads)));
  Abandon();
}

void ThreadBlock::FailInWarp(int warp) {
  SetError(absl::StrCat("not every lane of warp ", warp, " comes to the same collective: ",
                        WhereAre(warp * kWarpLanes, kWarpLanes)));
  Abandon();
}

std::string ThreadBlock::WhereAre(int first, int count) const {
  // Lists ranges of threads that wait at the same place, in ascending order. Leaves out running
  // threads.
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
