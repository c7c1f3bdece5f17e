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

// A value of --backend, and how a worker gets the backend of that name. A factory without functions
// is the CPU backend, which every worker has. At most one of the functions is set.
struct BackendFactory {
  std::string name = "cpu";

  // Opens GPU number `gpu`, or a device that stands for one. The CUDA backend runs on the device,
  // and the KV pool lies in its memory. An error says what is missing, without the flags' names.
  std::function<absl::StatusOr<OpenedDevice>(int gpu)> open_device = nullptr;

  // Makes a backend in host memory that reads no weights.
  std::function<std::unique_ptr<Backend>()> make_weightless = nullptr;

  bool on_device() const { return open_device != nullptr; }
  bool reads_weights() const { return make_weightless == nullptr; }
};

// Returns the factory of that name: the CPU's, or one of `others`. Otherwise returns
// InvalidArgument, which lists the names that --backend takes.
absl::StatusOr<BackendFactory> FindBackend(const std::vector<BackendFactory>& others,
                                           absl::string_view name);

}  // namespace baton
