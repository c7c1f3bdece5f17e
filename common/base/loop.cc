#include "common/base/loop.h"

#include <utility>

#include <pthread.h>

#include "common/base/steady_time.h"

namespace baton {

Loop::Loop(Options options, std::function<bool(absl::Time now)> run_once)
    : options_(std::move(options)), run_once_(std::move(run_once)), thread_([this] { Run(); }) {}

Loop::~Loop() { Stop(); }

void Loop::Wake() {
  {
    MutexLock lock(&mutex_);
    woken_ = true;
    changed_.Signal();
  }
  if (options_.wake) options_.wake();
}

void Loop::Stop() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.Signal();
  }
  if (options_.wake) options_.wake();
  if (thread_.joinable()) thread_.join();
}

void Loop::Run() {
  pthread_setname_np(pthread_self(), options_.name);
  while (true) {
    if (options_.pulse != nullptr) options_.pulse->Beat();
    const bool busy = run_once_(SteadyNow());
    bool wait = false;
    {
      MutexLock lock(&mutex_);
      if (stop_) return;
      if (!busy && !woken_) {
        if (options_.wait) {
          wait = true;
        } else {
          changed_.WaitFor(&mutex_, options_.idle);
        }
      }
      woken_ = false;
    }
    if (wait) options_.wait(options_.idle);
  }
}

}  // namespace baton
