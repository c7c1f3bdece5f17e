#include "common/base/loop.h"

#include <algorithm>
#include <utility>

#include <pthread.h>

#include "common/base/check.h"
#include "common/base/steady_time.h"

namespace baton {

Loop::Loop(Options options, std::function<bool(absl::Time now)> run_once)
    : options_(std::move(options)), run_once_(std::move(run_once)) {
  BATON_CHECK((options_.wait == nullptr) == (options_.wake == nullptr)) << options_.name;
  if (!options_.wait) {
    Wakeup* const wakeup = options_.wakeup != nullptr ? options_.wakeup : &own_wakeup_;
    options_.wait = [wakeup](absl::Duration longest) { wakeup->WaitFor(longest); };
    options_.wake = [wakeup] { wakeup->Wake(); };
  }
  thread_ = std::thread([this] { Run(); });
}

Loop::~Loop() { Stop(); }

void Loop::Wake() { options_.wake(); }

void Loop::Stop() {
  stop_ = true;
  Wake();
  if (thread_.joinable()) thread_.join();
}

void Loop::Run() {
  pthread_setname_np(pthread_self(), options_.name);
  while (true) {
    if (options_.pulse != nullptr) options_.pulse->Beat();
    const bool busy = run_once_(SteadyNow());
    if (stop_) return;
    if (busy) continue;
    absl::Duration longest = options_.idle;
    if (options_.next_turn) longest = std::min(longest, options_.next_turn() - SteadyNow());
    options_.wait(longest);
  }
}

}  // namespace baton
