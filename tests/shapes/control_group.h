#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace baton {

// A control group with a memory limit. It is made in the version of control groups that this
// machine has. The destructor moves this process out of the group; all processes that it started
// must have ended by then.
class LimitedGroup {
 public:
  // Returns FailedPrecondition, with the reason, if this machine or this user can't have such a
  // group.
  static absl::StatusOr<std::unique_ptr<LimitedGroup>> Make(uint64_t limit_bytes);
  ~LimitedGroup();
  LimitedGroup(const LimitedGroup&) = delete;
  LimitedGroup& operator=(const LimitedGroup&) = delete;

  // Moves this process into the group. All processes that it starts from now on are in the group,
  // too.
  absl::Status Enter();
  int version() const { return version_; }
  // Returns the number of processes in the group that the kernel killed because memory ran out.
  int64_t kills() const;
  // Returns the max memory use of the group in bytes, page cache included; 0 if the kernel does not
  // report it.
  uint64_t max_used_bytes() const;

 private:
  LimitedGroup(int version, std::string folder, std::string home)
      : version_(version), folder_(std::move(folder)), home_(std::move(home)) {}
  const int version_;
  const std::string folder_, home_;  // home_ is the group to which this process belonged before.
};

}  // namespace baton
