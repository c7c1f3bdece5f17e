#include "router/door/encode_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rpc/retry_after.h"

namespace baton {
namespace {

absl::Status Overloaded(absl::string_view why) {
  return WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat("the router is overloaded: ", why)),
      WithJitter(absl::Seconds(1)));
}

}  // namespace

EncodePool::EncodePool(Options options) : options_(options) {
  BATON_CHECK(options.threads >= 2) << options.threads << " threads";
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Run(); });
}

EncodePool::~EncodePool() {
  {
    MutexLock lock(&mutex_);
    BATON_CHECK(waiting_ == 0) << waiting_ << " texts still wait";
    stopping_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status EncodePool::Submit(const std::string& caller, size_t bytes, Work work) {
  std::vector<Job> evicted;
  {
    MutexLock lock(&mutex_);
    if (!MakeRoom(caller, bytes, &evicted)) {
      return Overloaded(
          absl::StrCat(waiting_, " texts of ", bytes_, " bytes wait to be tokenised"));
    }
    const auto [found, added] = callers_.try_emplace(caller);
    if (added) {
      found->second.start = virtual_time_;
      if (const auto before = remembered_.extract(caller); !before.empty()) {
        found->second.start = std::max(virtual_time_, before.mapped());
      }
    }
    Add(&found->second, {bytes, std::move(work)});
    changed_.SignalAll();
  }
  // Without the lock, because the work may submit other work.
  for (const Job& job : evicted) {
    job.work(Overloaded(
        "too many texts wait to be tokenised, and the caller of this one has the most of them"));
  }
  return absl::OkStatus();
}

size_t EncodePool::waiting() {
  MutexLock lock(&mutex_);
  return waiting_;
}

bool EncodePool::MakeRoom(const std::string& caller, size_t bytes, std::vector<Job>* evicted) {
  const auto own = callers_.find(caller);
  const size_t own_texts = 1 + (own == callers_.end() ? 0 : own->second.jobs.size());
  const size_t own_bytes = bytes + (own == callers_.end() ? 0 : own->second.bytes);
  std::vector<CallerMap::iterator> losers;  // The caller of each job in `evicted`.
  while (waiting_ >= options_.max_waiting ||
         (waiting_ > 0 && bytes_ + bytes > options_.max_bytes)) {
    const bool by_number = waiting_ >= options_.max_waiting;
    const auto has = [by_number](const Caller& one) {
      return by_number ? one.jobs.size() : one.bytes;
    };
    const auto busiest = std::max_element(
        callers_.begin(), callers_.end(),
        [&has](const auto& a, const auto& b) { return has(a.second) < has(b.second); });
    if (has(busiest->second) <= (by_number ? own_texts : own_bytes)) {
      for (; !losers.empty(); losers.pop_back(), evicted->pop_back()) {
        Add(&losers.back()->second, std::move(evicted->back()));
      }
      return false;
    }
    evicted->push_back(std::move(busiest->second.jobs.back()));
    busiest->second.jobs.pop_back();
    NoteLeft(&busiest->second, evicted->back());
    losers.push_back(busiest);
  }
  if (losers.empty()) return true;
  for (auto it = callers_.begin(); it != callers_.end();) {
    const auto one = it++;
    if (one->second.jobs.empty()) Remember(one);
  }
  return true;
}

void EncodePool::Add(Caller* caller, Job job) {
  ++waiting_;
  bytes_ += job.bytes;
  caller->bytes += job.bytes;
  caller->jobs.push_back(std::move(job));
}

void EncodePool::NoteLeft(Caller* caller, const Job& job) {
  --waiting_;
  bytes_ -= job.bytes;
  caller->bytes -= job.bytes;
}

bool EncodePool::LargeMayBegin(size_t bytes) const {
  if (large_running_ == 0) return true;
  return large_running_ + 1 < options_.threads &&
         large_bytes_running_ + bytes <= options_.max_large_bytes;
}

EncodePool::CallerMap::iterator EncodePool::Next() {
  auto large = callers_.end(), other = callers_.end();
  for (auto it = callers_.begin(); it != callers_.end(); ++it) {
    auto& next = Large(it->second.jobs.front()) ? large : other;
    if (next == callers_.end() || it->second.start < next->second.start) next = it;
  }
  // No other large text overtakes one that may not begin. Otherwise the largest would starve.
  if (large == callers_.end() || !LargeMayBegin(large->second.jobs.front().bytes)) return other;
  return other == callers_.end() || large->second.start <= other->second.start ? large : other;
}

void EncodePool::Remember(CallerMap::iterator caller) {
  if (remembered_.size() >= options_.max_remembered) {
    // The others have had as much as these callers.
    std::erase_if(remembered_,
                  [now = virtual_time_](const auto& entry) { return entry.second <= now; });
  }
  remembered_[caller->first] = caller->second.start;
  callers_.erase(caller);
  if (remembered_.size() <= options_.max_remembered) return;
  remembered_.erase(
      std::min_element(remembered_.begin(), remembered_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; }));
}

void EncodePool::Run() {
  MutexLock lock(&mutex_);
  while (true) {
    const auto next = Next();
    if (next == callers_.end()) {
      if (stopping_) return;
      changed_.Wait(&mutex_);
      continue;
    }
    Caller& caller = next->second;
    Job job = std::move(caller.jobs.front());
    caller.jobs.pop_front();
    NoteLeft(&caller, job);
    virtual_time_ = std::max(virtual_time_, caller.start);
    caller.start += job.bytes;
    if (caller.jobs.empty()) Remember(next);
    ++running_;
    if (Large(job)) {
      ++large_running_;
      large_bytes_running_ += job.bytes;
    }
    mutex_.Unlock();
    job.work(absl::OkStatus());
    job.work = nullptr;
    mutex_.Lock();
    --running_;
    // While a text runs or waits, callers compete. Once none does, all of them have had their turn.
    if (running_ == 0 && waiting_ == 0) remembered_.clear();
    if (Large(job)) {
      --large_running_;
      large_bytes_running_ -= job.bytes;
      changed_.SignalAll();
    }
  }
}

}  // namespace baton
