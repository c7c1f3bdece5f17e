#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/up/processes.h"

namespace baton {

// Decides when the processes of one cluster start, restart and stop. It starts no process and reads
// no clock: the caller passes the time, reports what happened, and does what the callbacks ask. All
// calls must come from one thread.
//
// Guarantees:
// - Workers start once the router has an address. A router that is restarted listens at the same
//   address.
// - A process that ends is restarted after a pause. The pause doubles from 0.2 to 10 seconds, and
//   is short again once a run has lasted 30 seconds.
// - A process that refuses its very first start (exit status 2) is not restarted. Until
//   Serving() has been called, such a refusal makes the whole start fail. The start also fails when
//   one process ends five times in a row without having had an address.
// - After Stop(), the router ends first, so that running answers get their last tokens. The workers
//   end after it. A process that exceeds its time limit is killed.
class Supervisor {
 public:
  enum class State {
    kWaiting,  // waits for the router's address
    kRunning,
    kPausing,  // waits until it is restarted
    kRefused,  // refused its first start, and is not restarted
    kEnded,    // ended while the cluster was being stopped
  };
  struct Process {
    ProcessSpec spec;
    absl::Duration stop_limit;
    State state = State::kWaiting;
    std::string address;       // address of the current or last run; empty before the first one
    bool has_address = false;  // true if the current run has an address
    int starts = 0;
    int starts_without_address = 0;  // number of starts in a row that got no address
    absl::Time started, next_start, kill_at = absl::InfiniteFuture();
    std::string last_end;  // such as "ended with status 1"; empty if the process has never ended
    bool stopping = false;
  };
  struct Callbacks {
    // Starts the process. If this fails, the callback must call OnStartFailed().
    std::function<void(const Process&)> start;
    std::function<void(const Process&, int)> signal;   // sends a signal to a running process
    std::function<void(absl::string_view line)> note;  // shows a line to the user
  };

  Supervisor(std::vector<Process> processes, Callbacks callbacks);

  // Starts the router.
  void Begin(absl::Time now);
  // Call when the process listens at `address`.
  void OnAddress(absl::string_view name, absl::string_view address, absl::Time now);
  // Call when the process has ended. `wait_status` is the status from waitpid().
  void OnEnd(absl::string_view name, int wait_status, absl::Time now);
  // Call when the process could not be started at all.
  void OnStartFailed(absl::string_view name, absl::string_view why, absl::Time now);
  // Starts and kills the processes that are due. Call it at NextTime(); earlier calls do no harm.
  void OnTime(absl::Time now);
  absl::Time NextTime() const;

  // Call when the cluster has answered its first prompt. From now on, no process can make the start
  // fail.
  void Serving() { serving_ = true; }
  // Stops all processes in order. The second call no longer waits for running answers. The third
  // call kills the processes.
  void Stop(absl::Time now);

  bool stopping() const { return stops_ > 0; }
  // True once Stop() was called and every process has ended.
  bool done() const;
  // The process that made the start fail, or null.
  const Process* failed() const { return failed_ < 0 ? nullptr : &processes_[failed_]; }
  const std::vector<Process>& processes() const { return processes_; }
  const std::string& router_address() const { return processes_[0].address; }

 private:
  Process& Find(absl::string_view name);
  void Start(Process* process, absl::Time now);
  void Terminate(Process* process, absl::Time now, absl::Duration limit);
  void Pause(Process* process, absl::Time now);
  // Once the router has ended, tells the workers to stop.
  void StopWorkersAfterRouter(absl::Time now);

  std::vector<Process> processes_;
  const Callbacks callbacks_;
  std::vector<absl::Duration> pauses_;  // next pause of each process
  bool serving_ = false;
  int stops_ = 0;
  int failed_ = -1;
};

// Returns "ended with status 1", or "was killed by signal 9 (Killed)".
std::string DescribeEnd(int wait_status);

}  // namespace baton
