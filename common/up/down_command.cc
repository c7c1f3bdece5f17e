#include "common/up/down_command.h"

#include <cerrno>
#include <cstring>

#include <poll.h>
#include <signal.h>
#include <unistd.h>

extern "C" {  // Debian 12's header lacks extern "C"
#include <sys/pidfd.h>
}

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/steady_time.h"
#include "common/up/state_folder.h"
#include "common/up/wording.h"

namespace baton {
namespace {

constexpr absl::Duration kSilence = absl::Seconds(2);

// Waits until the process has ended. From time to time prints that it is waiting.
void AwaitEnd(int process) {
  const absl::Time begin = SteadyNow();
  absl::Duration pause = kSilence;
  while (true) {
    pollfd file = {.fd = process, .events = POLLIN};
    const int ready = poll(&file, 1, static_cast<int>(absl::ToInt64Milliseconds(pause)));
    if (ready > 0) return;
    if (ready < 0) continue;
    Say(absl::StrCat("waiting for running answers to end (",
                     absl::ToInt64Seconds(SteadyNow() - begin), " s); a second ", CalledAs(),
                     " down, in another terminal, ends them at once"));
    pause = absl::Seconds(10);
  }
}

}  // namespace

int RunDown(const std::string& state) {
  const StateFolder folder(state);
  const pid_t owner = folder.Owner();
  if (owner == 0) {
    Say("nothing is up");
    return 0;
  }
  // The process descriptor is opened before the owner is checked again. Then no other process that
  // gets the same id later can receive the signal.
  const int process = pidfd_open(owner, 0);
  if (process < 0 || folder.Owner() != owner) {
    if (process >= 0) close(process);
    if (folder.Owner() == 0) {
      Say("stopped");  // the cluster ended by itself just now
      return 0;
    }
    SayFailure(absl::StrCat("can't reach process ", owner,
                            ", which supervises the cluster: ", strerror(errno)));
    return 1;
  }
  if (pidfd_send_signal(process, SIGTERM, nullptr, 0) != 0 && errno != ESRCH) {
    SayFailure(absl::StrCat("can't stop process ", owner, ", which supervises the cluster: ",
                            strerror(errno), "; only the user who started it can"));
    close(process);
    return 1;
  }
  AwaitEnd(process);
  close(process);
  Say("stopped");
  return 0;
}

}  // namespace baton
