#include "common/up/supervisor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <signal.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(10);
// After a run of at least this length, the pause before a restart is short again.
constexpr absl::Duration kLongRun = absl::Seconds(30);
constexpr absl::Duration kHurriedLimit = absl::Seconds(5);
constexpr int kMaxStartsWithoutAddress = 5;
constexpr int kRefusedStatus = 2;  // exit status of RefuseToStart

}  // namespace

std::string DescribeEnd(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    return absl::StrCat("was killed by signal ", number, " (", strsignal(number), ")");
  }
  return absl::StrCat("ended with status ", WEXITSTATUS(wait_status));
}

Supervisor::Supervisor(std::vector<Process> processes, Callbacks callbacks)
    : processes_(std::move(processes)),
      callbacks_(std::move(callbacks)),
      pauses_(processes_.size(), kFirstPause) {
  BATON_CHECK(!processes_.empty() && processes_[0].spec.role == Role::kRouter);
}

Supervisor::Process& Supervisor::Find(absl::string_view name) {
  const auto process = std::find_if(processes_.begin(), processes_.end(),
                                    [&](const Process& one) { return one.spec.name == name; });
  BATON_CHECK(process != processes_.end()) << name;
  return *process;
}

void Supervisor::Begin(absl::Time now) { Start(&processes_[0], now); }

void Supervisor::Start(Process* process, absl::Time now) {
  process->state = State::kRunning;
  process->started = now;
  process->has_address = false;
  ++process->starts;
  callbacks_.start(*process);
}

void Supervisor::OnAddress(absl::string_view name, absl::string_view address, absl::Time now) {
  Process& process = Find(name);
  if (process.state != State::kRunning) return;
  process.address = std::string(address);
  process.has_address = true;
  process.starts_without_address = 0;
  if (process.spec.role != Role::kRouter || stops_ > 0) return;
  for (Process& worker : processes_) {
    if (worker.state == State::kWaiting) Start(&worker, now);
  }
}

void Supervisor::OnEnd(absl::string_view name, int wait_status, absl::Time now) {
  Process& process = Find(name);
  process.last_end = DescribeEnd(wait_status);
  process.kill_at = absl::InfiniteFuture();
  if (!process.has_address) ++process.starts_without_address;
  process.has_address = false;
  if (stops_ > 0) {
    process.state = State::kEnded;
    StopWorkersAfterRouter(now);
    return;
  }
  const int index = static_cast<int>(&process - processes_.data());
  if (process.starts == 1 && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kRefusedStatus) {
    process.state = State::kRefused;
    if (!serving_ && failed_ < 0) failed_ = index;
    if (serving_)
      callbacks_.note(absl::StrCat(name, " refused to start, and is not started again"));
    return;
  }
  if (now - process.started >= kLongRun) pauses_[index] = kFirstPause;
  Pause(&process, now);
}

void Supervisor::OnStartFailed(absl::string_view name, absl::string_view why, absl::Time now) {
  Process& process = Find(name);
  process.last_end = absl::StrCat("could not be started: ", why);
  ++process.starts_without_address;
  if (stops_ > 0) {
    process.state = State::kEnded;
    StopWorkersAfterRouter(now);
    return;
  }
  Pause(&process, now);
}

void Supervisor::Pause(Process* process, absl::Time now) {
  absl::Duration& pause = pauses_[static_cast<size_t>(process - processes_.data())];
  process->state = State::kPausing;
  process->next_start = now + pause;
  callbacks_.note(absl::StrCat(process->spec.name, " ", process->last_end, "; it starts again in ",
                               absl::FormatDuration(pause)));
  pause = std::min(2 * pause, kLongestPause);
  if (!serving_ && failed_ < 0 && process->starts_without_address >= kMaxStartsWithoutAddress) {
    failed_ = static_cast<int>(process - processes_.data());
  }
}

void Supervisor::OnTime(absl::Time now) {
  for (Process& process : processes_) {
    if (process.state == State::kPausing && now >= process.next_start) Start(&process, now);
    if (process.state == State::kRunning && now >= process.kill_at) {
      callbacks_.note(absl::StrCat(process.spec.name, " did not stop in time and was killed"));
      process.kill_at = absl::InfiniteFuture();
      callbacks_.signal(process, SIGKILL);
    }
  }
}

absl::Time Supervisor::NextTime() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Process& process : processes_) {
    if (process.state == State::kPausing) next = std::min(next, process.next_start);
    if (process.state == State::kRunning) next = std::min(next, process.kill_at);
  }
  return next;
}

void Supervisor::Terminate(Process* process, absl::Time now, absl::Duration limit) {
  if (process->state != State::kRunning) {
    process->state = State::kEnded;
    return;
  }
  process->stopping = true;
  process->kill_at = std::min(process->kill_at, now + limit);
  callbacks_.signal(*process, SIGTERM);
}

void Supervisor::Stop(absl::Time now) {
  ++stops_;
  if (stops_ == 1) {
    for (Process& process : processes_) {
      if (process.state != State::kRunning) process.state = State::kEnded;
    }
    Terminate(&processes_[0], now, processes_[0].stop_limit);
    StopWorkersAfterRouter(now);
    return;
  }
  for (Process& process : processes_) {
    if (process.state != State::kRunning) continue;
    if (stops_ == 2) {
      Terminate(&process, now, kHurriedLimit);
    } else {
      callbacks_.signal(process, SIGKILL);
    }
  }
}

void Supervisor::StopWorkersAfterRouter(absl::Time now) {
  if (processes_[0].state != State::kEnded) return;
  for (size_t i = 1; i < processes_.size(); ++i) {
    Process& worker = processes_[i];
    if (worker.state == State::kRunning && !worker.stopping) {
      Terminate(&worker, now, worker.stop_limit);
    }
  }
}

bool Supervisor::done() const {
  return stops_ > 0 && std::all_of(processes_.begin(), processes_.end(),
                                   [](const Process& one) { return one.state == State::kEnded; });
}

}  // namespace baton
