#include "tests/faults/load.h"

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr int kStreams = 12;

}  // namespace

void Seen::AddToken() {
  MutexLock lock(&mutex_);
  ++tokens_;
  changed_.SignalAll();
}

void Seen::AddAnswer(const v1::Summary& summary) {
  MutexLock lock(&mutex_);
  ++all_answers_;
  ++answers_[summary.prefill_worker()];
  ++answers_[summary.decode_worker()];
  changed_.SignalAll();
}

int Seen::all_answers() {
  MutexLock lock(&mutex_);
  return all_answers_;
}

int Seen::answers(const std::string& address) {
  MutexLock lock(&mutex_);
  return answers_[address];
}

bool Seen::AwaitTokens(int more) {
  MutexLock lock(&mutex_);
  const int64_t wanted = tokens_ + more;
  return Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return tokens_ >= wanted; });
}

bool Seen::AwaitAnswers(const std::string& address, int more) {
  MutexLock lock(&mutex_);
  const int wanted = answers_[address] + more;
  return Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return answers_[address] >= wanted; });
}

bool Seen::Await(const std::function<bool()>& reached) {
  const absl::Time until = absl::Now() + kPatience;
  while (!reached()) {
    const absl::Duration left = until - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

Load::Load(Cluster& cluster, const std::vector<Case>& cases, Seen& seen)
    : cluster_(cluster), cases_(cases), seen_(seen) {
  for (int i = 0; i < kStreams; ++i) threads_.emplace_back([this] { Ask(); });
}

void Load::Stop() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Load::RouterDies() {
  MutexLock lock(&mutex_);
  router_down_ = true;
  ++router_deaths_;
}

void Load::RouterIsBack() {
  MutexLock lock(&mutex_);
  router_down_ = false;
  changed_.SignalAll();
}

std::optional<int> Load::AwaitRouter() {
  MutexLock lock(&mutex_);
  while (router_down_ && !stop_) changed_.Wait(&mutex_);
  return stop_ ? std::nullopt : std::make_optional(router_deaths_);
}

int Load::router_deaths() {
  MutexLock lock(&mutex_);
  return router_deaths_;
}

void Load::Ask() {
  while (const std::optional<int> deaths_before = AwaitRouter()) {
    const size_t i = next_++ % cases_.size();
    const Case& c = cases_[i];
    const Answer answer = Generate(cluster_.stub(), c.Request(), absl::Seconds(300),
                                   [this](const v1::Token&) { seen_.AddToken(); });
    if (answer.status.ok()) {
      seen_.AddAnswer(answer.summary);
      if (answer.summary.migrations() > 0) ++tally.migrated;
      const bool same = c.Is(answer);
      ++(same ? tally.right : tally.wrong);
      if (!same)
        ADD_FAILURE() << "case " << i << ", prompt of " << c.prompt.size()
                      << " tokens: wrong tokens or logprobs after " << answer.summary.migrations()
                      << " migrations";
    } else if (absl::IsUnavailable(answer.status) && router_deaths() != *deaths_before) {
      ++tally.cut_off;
      if (!c.Begins(answer)) {
        ++tally.wrong;
        ADD_FAILURE() << "case " << i << ": wrong tokens before its router died";
      }
    } else {
      ++tally.failed;
      ADD_FAILURE() << "case " << i << ", prompt of " << c.prompt.size()
                    << " tokens: " << answer.status;
    }
  }
}

}  // namespace baton
