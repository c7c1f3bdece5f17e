#include "common/up/status_command.h"

#include <cerrno>
#include <cstdio>

#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/up/child_process.h"
#include "common/up/state_folder.h"
#include "common/up/wording.h"

namespace baton {
namespace {

// Runs a command of baton-client, with this process's output. Returns true if the command
// succeeded.
bool Ask(const std::string& programs, const std::string& router, const char* command) {
  const absl::StatusOr<pid_t> client =
      StartChild({.program = absl::StrCat(programs, "/baton-client"),
                  .arguments = {command, absl::StrCat("--router=", router), "--timeout=5s"},
                  .own_group = false});
  if (!client.ok()) {
    SayFailure(client.status().message());
    return false;
  }
  int status = 0;
  while (waitpid(*client, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int RunStatus(const std::string& programs, const std::string& state) {
  const StateFolder folder(state);
  if (folder.Owner() == 0) {
    Say("nothing is up");
    return 1;
  }
  const std::string http = folder.HttpAddress();
  for (const ProcessRecord& record : folder.Read()) {
    absl::PrintF("  %-10s %-21s pid %-8s log %s\n", record.name,
                 record.address.empty() ? "-" : record.address,
                 record.pid == 0 ? "-" : absl::StrCat(record.pid), folder.LogFile(record.name));
    if (!record.note.empty()) absl::PrintF("  %-10s %s\n", "", record.note);
    if (record.name == "router" && !http.empty()) {
      absl::PrintF("  %-10s %-21s OPENAI_BASE_URL=%s\n", "http", http, OpenAiBaseUrl(http));
    }
  }
  std::fflush(stdout);
  if (folder.Stopping()) {
    Say("the cluster is being stopped");
    return 1;
  }
  const std::string router = folder.RouterAddress();
  if (router.empty()) {
    Say("the router does not listen yet");
    return 1;
  }
  return Ask(programs, router, "models") && Ask(programs, router, "health") ? 0 : 1;
}

}  // namespace baton
