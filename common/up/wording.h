#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// Returns the name under which the user started this program, for messages: "./baton", or
// "baton-up" if it was started directly.
std::string CalledAs();
// Returns the command that sends a prompt to the running router, for messages.
std::string AskCommand(absl::string_view router_address);

// Prints a line to standard error.
void Say(absl::string_view line);
// Prints "NAME: MESSAGE" to standard error. NAME is CalledAs() without its folder.
void SayFailure(absl::string_view message);

}  // namespace baton
