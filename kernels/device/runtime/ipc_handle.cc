#include "kernels/device/runtime/ipc_handle.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/random.h"

namespace baton {
namespace {

// First part of a handle: maker, kind, and exporting process. The body and then a checksum follow.
struct Head {
  char maker[8];
  IpcKind kind;
  int32_t process;
  uint64_t starter;  // random, one per process, because process ids are reused
};
static_assert(sizeof(Head) == 24, "no padding");

uint64_t Starter() {
  static const uint64_t starter = RandomU64();
  return starter;
}

}  // namespace

std::string SealHandle(absl::string_view maker, IpcKind kind, absl::string_view body) {
  Head head = {};
  maker.copy(head.maker, sizeof(head.maker));
  head.kind = kind;
  head.process = getpid();
  head.starter = Starter();
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes.append(body.data(), body.size());
  const uint64_t hash = Hash64(bytes);
  bytes.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
  return bytes;
}

absl::StatusOr<std::string> OpenHandle(absl::string_view maker, IpcKind kind,
                                       absl::string_view bytes) {
  Head head;
  uint64_t hash = 0;
  const bool whole = bytes.size() >= sizeof(head) + sizeof(hash);
  if (whole) {
    memcpy(&head, bytes.data(), sizeof(head));
    memcpy(&hash, bytes.data() + bytes.size() - sizeof(hash), sizeof(hash));
  }
  const absl::string_view sealed = bytes.substr(0, whole ? bytes.size() - sizeof(hash) : 0);
  if (!whole || absl::string_view(head.maker, sizeof(head.maker)) != maker ||
      Hash64(sealed) != hash) {
    return absl::InvalidArgumentError(
        absl::StrCat("these ", bytes.size(), " bytes are no handle of a device of this kind"));
  }
  const char* const what = kind == IpcKind::kMemory ? "memory" : "an event";
  if (head.kind != kind) {
    return absl::InvalidArgumentError(absl::StrCat("this handle is not one of ", what));
  }
  if (head.process == getpid() && head.starter == Starter()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this handle of ", what, " was exported by this process, which can't import it"));
  }
  return std::string(sealed.substr(sizeof(head)));
}

}  // namespace baton
