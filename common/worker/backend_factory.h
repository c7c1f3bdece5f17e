#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend/backend.h"
#include "kernels/cuda/open_device.h"

namespace baton {

// One value of --backend, and how a worker makes this backend. At most one of the two functions is
// set. If neither is set, this is the CPU backend, which every worker has.
struct BackendFactory {
  std::string name = "cpu";

  // Opens GPU number `gpu`, or an emulated GPU, for the CUDA backend and its KV pool. An error says
  // what is missing. It names no flags.
  std::function<absl::StatusOr<OpenedDevice>(int gpu)> open_device = nullptr;

  // Makes a backend that computes in host memory and reads no weights.
  std::function<std::unique_ptr<Backend>()> make_weightless = nullptr;

  bool on_device() const { return open_device != nullptr; }
  bool reads_weights() const { return make_weightless == nullptr; }
};

// Returns the factory called `name`, which is the CPU's or one of `others`. For an unknown name,
// returns InvalidArgument with the names that --backend takes.
absl::StatusOr<BackendFactory> FindBackend(const std::vector<BackendFactory>& others,
                                           absl::string_view name);

}  // namespace baton
