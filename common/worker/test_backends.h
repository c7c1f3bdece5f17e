#pragma once

#include <cstddef>
#include <cstdint>

#include "common/worker/backend_factory.h"
#include "kernels/cuda/open_emulated_device.h"
#include "kernels/fake/fake_backend.h"

namespace baton {

// For tests. Returns the factory `cuda-emulated`: emulated devices of `memory_bytes` each, which
// fail for good after `fails_after_kernels` kernels (0: never).
inline BackendFactory EmulatedBackendFactory(size_t memory_bytes = size_t{1} << 30,
                                             int64_t fails_after_kernels = 0) {
  return {.name = "cuda-emulated", .open_device = [=](int gpu) {
            return OpenEmulatedDevice(memory_bytes, gpu, fails_after_kernels);
          }};
}

// For tests. Returns the factory `fake`: it computes nothing, and its tokens are hashes of the KV.
inline BackendFactory FakeBackendFactory() {
  return {.name = "fake", .make_weightless = [] { return CreateFakeBackend({}); }};
}

}  // namespace baton
