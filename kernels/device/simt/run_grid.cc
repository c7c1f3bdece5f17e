#include "kernels/device/simt/run_grid.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/simt/access_checker.h"
#include "kernels/device/simt/device_calls.h"
#include "kernels/device/simt/simt_entry.h"
#include "kernels/device/simt/thread_block.h"

namespace baton::simt {
namespace {

// CUDA's limits.
constexpr int kMaxThreads = 1024;
constexpr int kMaxGridYZ = 65535;
constexpr size_t kMaxParams = 4000;

bool Checked(const Kernel& kernel, const SimtOptions& options) {
  return static_cast<const SimtEntry*>(kernel.entry)->checked && options.check;
}

absl::Status Check(const Kernel& kernel, const LaunchShape& shape, const void* params,
                   const SimtOptions& options) {
  const auto wrong = [&](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat("kernel ", kernel.name, ": ", text...));
  };
  if (kernel.name == nullptr || kernel.entry == nullptr) {
    return absl::InvalidArgumentError("a kernel without name or code");
  }
  if (current.block != nullptr) return wrong("launched by a kernel that runs");
  const int max_threads = static_cast<const SimtEntry*>(kernel.entry)->max_threads;
  if (shape.threads < 1 || shape.threads > kMaxThreads || shape.threads % kWarpLanes != 0 ||
      shape.threads > max_threads) {
    return wrong(shape.threads, " threads; a block of it has a multiple of ", kWarpLanes,
                 " of them, at most ", max_threads);
  }
  if (shape.grid_x < 1 || shape.grid_y < 1 || shape.grid_z < 1 || shape.grid_y > kMaxGridYZ ||
      shape.grid_z > kMaxGridYZ) {
    return wrong("a grid of ", shape.grid_x, " x ", shape.grid_y, " x ", shape.grid_z,
                 " blocks; each is at least 1, the last two at most ", kMaxGridYZ);
  }
  if (shape.shared_bytes > options.max_shared_bytes) {
    return wrong(shape.shared_bytes, " bytes of dynamic shared memory; a block has at most ",
                 options.max_shared_bytes);
  }
  if (kernel.params_bytes > kMaxParams) {
    return wrong(kernel.params_bytes, " bytes of parameters; at most ", kMaxParams);
  }
  const int64_t blocks = int64_t{shape.grid_x} * shape.grid_y * shape.grid_z;
  if (Checked(kernel, options) && blocks > AccessChecker::kMaxBlocks) {
    return wrong(blocks, " blocks; at most ", AccessChecker::kMaxBlocks, " can be checked");
  }
  if (params == nullptr && kernel.params_bytes > 0) return wrong("no parameters");
  return absl::OkStatus();
}

}  // namespace

absl::Status RunGrid(const Kernel& kernel, const LaunchShape& shape, const void* params,
                     const SimtOptions& options) {
  RETURN_IF_ERROR(Check(kernel, shape, params, options));
  thread_local ThreadBlock::Workspace workspace;
  RETURN_IF_ERROR(workspace.stacks.Reserve(shape.threads));
  Schedule schedule(options.seed);
  ThreadBlock block(kernel, shape, params, options, schedule, workspace);
  std::optional<AccessChecker> checker;
  if (Checked(kernel, options)) {
    checker.emplace(block, shape, params, kernel.params_bytes, workspace.stacks, options.memory);
    block.set_checker(&*checker);
  }

  current = {&block, 0, shape.threads, 0, 0, 0, shape.grid_x, shape.grid_y, shape.grid_z};
  std::vector<int> xs, ys, zs;
  absl::Status status;
  schedule.Shuffle(shape.grid_z, zs);
  for (size_t z = 0; z < zs.size() && status.ok(); ++z) {
    schedule.Shuffle(shape.grid_y, ys);
    for (size_t y = 0; y < ys.size() && status.ok(); ++y) {
      schedule.Shuffle(shape.grid_x, xs);
      for (size_t x = 0; x < xs.size() && status.ok(); ++x) {
        current.block_x = xs[x];
        current.block_y = ys[y];
        current.block_z = zs[z];
        status = block.Run();
      }
    }
  }
  current = {};
  return status;
}

}  // namespace baton::simt
