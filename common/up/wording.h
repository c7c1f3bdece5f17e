#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// Returns the name under which the user started this program, for messages: "./baton", or
// "baton-up" if it was started directly.
std::string CalledAs();
// Returns a command that asks the running router, "generate" or "chat", for messages.
std::string AskCommand(absl::string_view command, absl::string_view router_address);
// Returns true if $BATON_API_KEY holds a key, which the router then asks for and clients send.
bool HasApiKey();
// Returns the URL that clients of the OpenAI API take as OPENAI_BASE_URL. `http_address` is where
// clients reach the router by HTTP.
std::string OpenAiBaseUrl(absl::string_view http_address);
// Returns a curl command that asks the router for a completion. A key stands in it as the name of
// its variable.
std::string CurlCommand(absl::string_view http_address, absl::string_view prompt);
// Returns the shell command that sets up a terminal for clients of the OpenAI API.
std::string OpenAiExports(absl::string_view http_address);

// Prints a line to standard error.
void Say(absl::string_view line);
// Prints "NAME: MESSAGE" to standard error. NAME is CalledAs() without its folder.
void SayFailure(absl::string_view message);

}  // namespace baton
