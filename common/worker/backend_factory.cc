#include "common/worker/backend_factory.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<BackendFactory> FindBackend(const std::vector<BackendFactory>& others,
                                           absl::string_view name) {
  const BackendFactory cpu;
  if (name == cpu.name) return cpu;
  std::string names = cpu.name;
  for (const BackendFactory& factory : others) {
    if (factory.name == name) return factory;
    absl::StrAppend(&names, &factory == &others.back() ? " or " : ", ", factory.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("--backend is '", name, "'; it takes ", names));
}

}  // namespace baton
