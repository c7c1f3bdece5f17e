#include "kernels/device/emulated/emulated_streams.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton {
namespace {

// One call of Run in four, on average, also runs work that is not needed yet. The other calls run
// only the work that is needed.
constexpr int kRunsPerEagerOne = 4;

}  // namespace

bool StreamPoint::Reached() const { return queue == nullptr || queue->done() >= position; }

std::shared_ptr<EmulatedQueue> StreamScheduler::CreateQueue() {
  queues_.push_back(std::make_shared<EmulatedQueue>());
  return queues_.back();
}

void StreamScheduler::DestroyQueue(const std::shared_ptr<EmulatedQueue>& queue) {
  queues_.erase(std::find(queues_.begin(), queues_.end(), queue));
}

// The recursion ends, because every wait is for a point that existed before the wait.
void StreamScheduler::Require(const StreamPoint& point, Goals* goals) const {
  if (point.Reached()) return;
  uint64_t& goal = (*goals)[point.queue];
  if (goal >= point.position) return;
  const uint64_t known = std::max(goal, point.queue->done_);
  goal = point.position;
  for (uint64_t i = known; i < point.position; ++i) {
    const EmulatedQueue::Item& item = point.queue->items_[i - point.queue->done_];
    if (const auto* wait = std::get_if<StreamPoint>(&item)) Require(*wait, goals);
  }
}

absl::Status StreamScheduler::RunUntil(const StreamPoint& goal) {
  Goals goals;
  Require(goal, &goals);
  return Run(goals, /*wait=*/true);
}

absl::Status StreamScheduler::RunTowards(const StreamPoint& goal) {
  Goals goals;
  Require(goal, &goals);
  return Run(goals, /*wait=*/false);
}

absl::Status StreamScheduler::Await(const SharedPoint& point) {
  while (failure_.ok() && !point.event->Reached(point.recording)) WaitBriefly(point);
  return failure_;
}

absl::Status StreamScheduler::RunAll() {
  Goals goals;
  for (const auto& queue : queues_) goals[queue] = queue->end();
  return Run(goals, /*wait=*/true);
}

void StreamScheduler::RunSome() {
  if (queues_.empty()) return;
  EmulatedQueue& queue = *queues_[random_() % queues_.size()];
  if (!CanRun(queue)) return;
  OpenMemory open(memory_);
  Step(queue);
}

absl::Status StreamScheduler::Run(const Goals& goals, bool wait) {
  if (goals.empty() || !failure_.ok()) return failure_;
  const bool eager = random_() % kRunsPerEagerOne == 0;
  // Both lists are in the order in which the queues were created, which is the same in every run of
  // the program. The order of the hash map `goals` is not.
  std::vector<std::shared_ptr<EmulatedQueue>> needed, runnable;
  for (const auto& queue : queues_) {
    if (goals.contains(queue)) needed.push_back(queue);
  }
  memory_->Open();
  while (failure_.ok()) {
    needed.erase(
        std::remove_if(needed.begin(), needed.end(),
                       [&](const auto& queue) { return queue->done() >= goals.at(queue); }),
        needed.end());
    if (needed.empty()) break;
    const auto& from = eager ? queues_ : needed;
    runnable.clear();
    std::copy_if(from.begin(), from.end(), std::back_inserter(runnable),
                 [](const auto& queue) { return CanRun(*queue); });
    if (!runnable.empty()) {
      Step(*runnable[random_() % runnable.size()]);
      continue;
    }
    // All needed work waits for work of other processes. Asks those processes to run their work,
    // and waits for one of these processes.
    SharedPoint other;
    for (const auto& queue : needed) {
      const auto* const point = std::get_if<SharedPoint>(&queue->items_.front());
      if (point == nullptr) continue;
      point->event->Want(point->recording);
      other = *point;
    }
    BATON_CHECK(other.event != nullptr) << "streams wait for one another";
    if (!wait) break;
    memory_->Close();
    WaitBriefly(other);
    memory_->Open();
  }
  memory_->Close();
  return failure_;
}

void StreamScheduler::WaitBriefly(const SharedPoint& point) {
  mutex_->Unlock();
  point.event->WaitBriefly(point.recording);
  mutex_->Lock();
}

bool StreamScheduler::CanRun(const EmulatedQueue& queue) {
  if (queue.items_.empty()) return false;
  const EmulatedQueue::Item& item = queue.items_.front();
  if (const auto* wait = std::get_if<StreamPoint>(&item)) return wait->Reached();
  if (const auto* wait = std::get_if<SharedPoint>(&item)) {
    return wait->event->Reached(wait->recording);
  }
  return true;
}

void StreamScheduler::Step(EmulatedQueue& queue) {
  EmulatedQueue::Item& item = queue.items_.front();
  absl::Status status;
  if (auto* const work = std::get_if<EmulatedWork>(&item)) status = (*work)();
  if (const auto* const ended = std::get_if<SharedRecording>(&item)) {
    ended->point.event->EndRecording(ended->point.recording);
  }
  if (auto* const replay = std::get_if<GraphReplay>(&item)) {
    if (!replay->done()) status = replay->Step(random_);
    if (status.ok() && !replay->done()) return;
  }
  if (!status.ok()) return Fail(status);
  queue.items_.pop_front();
  ++queue.done_;
}

void StreamScheduler::Fail(const absl::Status& status) {
  failure_ = absl::InternalError(
      absl::StrCat("work on the device failed, and nothing more runs: ", status.message()));
  if (on_failure_) on_failure_(failure_);
  for (const auto& queue : queues_) {
    for (const EmulatedQueue::Item& item : queue->items_) {
      const auto* const ended = std::get_if<SharedRecording>(&item);
      if (ended != nullptr) ended->point.event->EndRecording(ended->point.recording);
    }
    queue->items_.clear();
    queue->done_ = queue->pushed_;
  }
}

void StreamScheduler::OnFailure(std::function<void(const absl::Status&)> handler) {
  on_failure_ = std::move(handler);
  if (!failure_.ok() && on_failure_) on_failure_(failure_);
}

}  // namespace baton
