#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/up/processes.h"

namespace baton {

// Decides when the processes of one cluster start, start again and stop. Starts no process and
// reads no clock itself: the caller passes the time, tells what happened, and does what the
// callbacks ask. One thread.
//
// Guarantees:
// - Workers start once the router has an address. A router that starts again listens there again.
// - A process that ends is started again after a pause, which doubles from 0.2 to 10 seconds and is
//   short again once the process has run for 30 seconds.
// - A process that refuses its very first start (exit status 2) is not started again. Before
//   Serving(), that is a failure of the whole start; so are five ends of one process that never
//   had an address.
// - After Stop(), the router ends first, so that running answers get their last tokens; then the
//   workers. A process that outlives its limit is killed.
class Supervisor {
 public:
  enum class State {
    kWaiting,  // for the router's address
    kRunning,
    kPausing,  // until it is started again
    kRefused,  // its first start, and stays away
    kEnded,    // while stopping
  };
  struct Process {
    ProcessSpec spec;
    absl::Duration stop_limit;
    State state = State::kWaiting;
    std::string address;       // of the run that is on, or of the last one; empty before the first
    bool has_address = false;  // of the run that is on
    int starts = 0;
    int starts_without_address = 0;  // in a row
    absl::Time started, next_start, kill_at = absl::InfiniteFuture();
    std::string last_end;  // "ended with status 1"; empty while it has never ended
    bool stopping = false;
  };
  struct Callbacks {
    std::function<void(const Process&)> start;         // calls OnStartFailed() if it can't
    std::function<void(const Process&, int)> signal;   // a running process, the signal
    std::function<void(absl::string_view line)> note;  // a line for people
  };

  Supervisor(std::vector<Process> processes, Callbacks callbacks);

  // Starts the router.
  void Begin(absl::Time now);
  // The process listens at `address`.
  void OnAddress(absl::string_view name, absl::string_view address, absl::Time now);
  // The process ended; `wait_status` is what waitpid() says.
  void OnEnd(absl::string_view name, int wait_status, absl::Time now);
  // The process could not be started at all.
  void OnStartFailed(absl::string_view name, absl::string_view why, absl::Time now);
  // Does what has become due. To be called at NextTime(), and may be called at any time.
  void OnTime(absl::Time now);
  absl::Time NextTime() const;

  // The cluster has answered. From now on no process fails the whole.
  void Serving() { serving_ = true; }
  // Stops all in order. The second call stops waiting for running answers; the third one kills.
  void Stop(absl::Time now);

  bool stopping() const { return stops_ > 0; }
  // True once Stop() was called and every process has ended.
  bool done() const;
  // The process whose failure ends the start.
  const Process* failed() const { return failed_ < 0 ? nullptr : &processes_[failed_]; }
  const std::vector<Process>& processes() const { return processes_; }
  const std::string& router_address() const { return processes_[0].address; }

 private:
  Process& Find(absl::string_view name);
  void Start(Process* process, absl::Time now);
  void Terminate(Process* process, absl::Time now, absl::Duration limit);
  void Pause(Process* process, absl::Time now);
  // Passes on from the router to the workers.
  void StopWorkersAfterRouter(absl::Time now);

  std::vector<Process> processes_;
  const Callbacks callbacks_;
  std::vector<absl::Duration> pauses_;  // of each process, the next one
  bool serving_ = false;
  int stops_ = 0;
  int failed_ = -1;
};

// "ended with status 1", or "was killed by signal 9 (Killed)".
std::string DescribeEnd(int wait_status);

}  // namespace baton
