#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace baton {

enum class IpcKind : uint32_t { kMemory = 1, kEvent = 2 };

// Makes the bytes of a handle from `body`, the runtime's description of the exported object.
// `maker` names the runtime in 8 letters. The handle also names this process.
std::string SealHandle(absl::string_view maker, IpcKind kind, absl::string_view body);
// Returns the body of the handle `bytes`. Returns InvalidArgument if SealHandle did not make
// `bytes` for this maker and kind, and FailedPrecondition if this process made them.
absl::StatusOr<std::string> OpenHandle(absl::string_view maker, IpcKind kind,
                                       absl::string_view bytes);

template <typename Body>
std::string SealHandle(absl::string_view maker, IpcKind kind, const Body& body) {
  static_assert(std::has_unique_object_representations_v<Body>, "no padding in handles");
  return SealHandle(maker, kind,
                    absl::string_view(reinterpret_cast<const char*>(&body), sizeof(body)));
}
template <typename Body>
absl::StatusOr<Body> OpenHandle(absl::string_view maker, IpcKind kind, absl::string_view bytes) {
  static_assert(std::has_unique_object_representations_v<Body>);
  ASSIGN_OR_RETURN(auto opened, OpenHandle(maker, kind, bytes));
  if (opened.size() != sizeof(Body)) {
    return absl::InvalidArgumentError("this handle was made by another version");
  }
  Body body;
  memcpy(&body, opened.data(), sizeof(body));
  return body;
}

}  // namespace baton
