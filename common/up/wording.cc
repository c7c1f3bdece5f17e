#include "common/up/wording.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace baton {

std::string CalledAs() {
  const char* name = std::getenv("BATON_CALLED_AS");  // set by ./baton
  return name == nullptr || *name == '\0' ? "baton-up" : name;
}

std::string AskCommand(absl::string_view router_address) {
  if (CalledAs() != "baton-up") return absl::StrCat(CalledAs(), " generate");
  return absl::StrCat("baton-client generate --router=", router_address);
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
