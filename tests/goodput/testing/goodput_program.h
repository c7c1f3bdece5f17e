#pragma once

#include <functional>
#include <string>

#include <sys/types.h>

#include "absl/strings/str_cat.h"
#include "tests/shell/run_shell.h"

namespace baton {

// Runs baton-goodput as its users do. `on_start` receives its process id.
inline Ended Goodput(const std::string& arguments,
                     const std::function<void(pid_t)>& on_start = nullptr) {
  return RunShell(absl::StrCat("exec ", BATON_BINARY_DIR, "/baton-goodput ", arguments),
                  {.on_start = on_start});
}

}  // namespace baton
