#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace baton {

// A control group of this test's own with a limit of memory, in the version that this machine has.
// Its destructor takes this process out again; processes that it started have to be gone by then.
class LimitedGroup {
 public:
  // FailedPrecondition says why this machine, or this user, can't have one.
  static absl::StatusOr<std::unique_ptr<LimitedGroup>> Make(uint64_t limit_bytes);
  ~LimitedGroup();
  LimitedGroup(const LimitedGroup&) = delete;
  LimitedGroup& operator=(const LimitedGroup&) = delete;

  // This process, and all that it starts from now on.
  absl::Status Enter();
  int version() const { return version_; }
  // Processes that the kernel has killed for want of memory.
  int64_t kills() const;
  // The most that has ever been in use, page cache included. 0 where the kernel does not say.
  uint64_t most_used_bytes() const;

 private:
  LimitedGroup(int version, std::string folder, std::string home)
      : version_(version), folder_(std::move(folder)), home_(std::move(home)) {}
  const int version_;
  const std::string folder_, home_;  // home: of the group that this process was in
};

}  // namespace baton
