#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// How the user started this program, for messages: "./baton", or "baton-up" by itself.
std::string CalledAs();
// The command that asks the running router, for messages.
std::string AskCommand(absl::string_view router_address);

// Prints a line to standard error.
void Say(absl::string_view line);
// Prints "baton: MESSAGE" to standard error, the name as it was called.
void SayFailure(absl::string_view message);

}  // namespace baton
