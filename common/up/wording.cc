#include "common/up/wording.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/api_key.h"

namespace baton {

std::string CalledAs() {
  const char* name = std::getenv("BATON_CALLED_AS");  // set by ./baton
  return name == nullptr || *name == '\0' ? "baton-up" : name;
}

std::string AskCommand(absl::string_view command, absl::string_view router_address) {
  if (CalledAs() != "baton-up") return absl::StrCat(CalledAs(), " ", command);
  return absl::StrCat("baton-client ", command, " --router=", router_address);
}

bool HasApiKey() {
  const char* const key = std::getenv(kApiKeyVariable);
  return key != nullptr && *key != '\0';
}

std::string OpenAiBaseUrl(absl::string_view http_address) {
  return absl::StrCat("http://", http_address, "/v1");
}

std::string CurlCommand(absl::string_view http_address, absl::string_view prompt) {
  return absl::StrCat("curl ", OpenAiBaseUrl(http_address),
                      "/completions -H 'Content-Type: application/json'",
                      HasApiKey() ? " -H \"Authorization: Bearer $BATON_API_KEY\"" : "",
                      " -d '{\"prompt\": \"", prompt, "\", \"max_tokens\": 60}'");
}

std::string OpenAiExports(absl::string_view http_address) {
  // The clients refuse to start without a key, also for a server that needs none.
  return absl::StrCat("export OPENAI_BASE_URL=", OpenAiBaseUrl(http_address),
                      " OPENAI_API_KEY=", HasApiKey() ? "$BATON_API_KEY" : "none");
}

void Say(absl::string_view line) {
  // A single write keeps the lines of this process and its children apart.
  const std::string text = absl::StrCat(line, "\n");
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void SayFailure(absl::string_view message) {
  std::string name = CalledAs();
  name.erase(0, name.rfind('/') + 1);  // erases nothing if there is no slash
  Say(absl::StrCat(name, ": ", message));
}

}  // namespace baton
