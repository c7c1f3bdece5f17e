#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include <sys/types.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

// For tests that run baton-goodput as its users do.
namespace baton {

struct Ended {
  int exit_status;     // 128 + signal when one killed it
  std::string output;  // standard output and error together
};

// The program itself; `on_start` is told its process id.
inline Ended Goodput(const std::string& arguments,
                     const std::function<void(pid_t)>& on_start = nullptr) {
  FILE* pipe =
      popen(absl::StrCat("echo $$; exec ", BATON_BINARY_DIR, "/baton-goodput ", arguments, " 2>&1")
                .c_str(),
            "r");
  Ended ended;
  char buffer[4096];
  EXPECT_NE(std::fgets(buffer, sizeof buffer, pipe), nullptr);
  if (on_start) on_start(std::atoi(buffer));
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) ended.output += buffer;
  const int status = pclose(pipe);
  ended.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

}  // namespace baton
