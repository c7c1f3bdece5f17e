#include "tests/goodput/load/machine_watch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr int kFirstRounds = 3;

}  // namespace

double WholeRequest(const UnloadedLatency& latency) {
  const uint32_t later = latency.output_tokens - std::min(1u, latency.output_tokens);
  return latency.ttft_s + later * latency.tpot_s;
}

MachineWatch::MachineWatch(size_t sides, double tolerated,
                           std::function<absl::StatusOr<UnloadedLatency>(size_t side)> measure)
    : tolerated_(tolerated),
      measure_(std::move(measure)),
      first_s_(sides, std::numeric_limits<double>::infinity()) {}

absl::Status MachineWatch::Begin() {
  for (int round = 0; round < kFirstRounds; ++round) {
    for (size_t side = 0; side < first_s_.size(); ++side) {
      ASSIGN_OR_RETURN(const UnloadedLatency latency, measure_(side));
      first_s_[side] = std::min(first_s_[side], WholeRequest(latency));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> MachineWatch::Slowdown(size_t side) {
  ASSIGN_OR_RETURN(const UnloadedLatency latency, measure_(side));
  const double slowdown = WholeRequest(latency) / first_s_[side];
  steady_ = slowdown <= 1 + tolerated_;
  worst_ = std::max(worst_, slowdown);
  return slowdown;
}

absl::StatusOr<bool> MachineWatch::WaitUntilSteady(size_t side, int max,
                                                   const std::function<bool()>& in_time) {
  for (int i = 0; i < max && !steady_ && in_time(); ++i) {
    if (absl::StatusOr<double> slowdown = Slowdown(side); !slowdown.ok()) return slowdown.status();
    waits_ += steady_ ? 0 : 1;
  }
  return steady_;
}

absl::StatusOr<bool> MachineWatch::StillSteady(size_t side) {
  if (absl::StatusOr<double> slowdown = Slowdown(side); !slowdown.ok()) return slowdown.status();
  thrown_away_ += steady_ ? 0 : 1;
  return steady_;
}

std::string MachineWatch::Remark() const {
  if (thrown_away_ == 0 && waits_ == 0) return "";
  return absl::StrFormat(
      "the machine was not steady: a request alone took up to %.2f times as long as at first; "
      "%d load%s that met such a time did not count, and %d measurements were waited for it to end",
      worst_, thrown_away_, thrown_away_ == 1 ? "" : "s", waits_);
}

}  // namespace baton
