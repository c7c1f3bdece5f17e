#include "kernels/cpu/cpu_backend.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_conformance.h"

namespace baton {
namespace {

using Isa = CpuBackendOptions::Isa;

ConformanceParam ParamOf(const char* name, Isa isa) {
  const auto copy = [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); };
  return {.name = name,
          .create =
              [isa](int threads) {
                return CreateCpuBackend({threads, isa});
              },
          .allocate =
              [](size_t bytes) {
                return std::shared_ptr<std::byte>(new std::byte[bytes],
                                                  std::default_delete<std::byte[]>());
              },
          .upload = copy,
          .download = copy};
}

std::vector<ConformanceParam> Params() {
  std::vector<ConformanceParam> params;
  if (CreateCpuBackend({1, Isa::kAvx2}).ok()) params.push_back(ParamOf("avx2", Isa::kAvx2));
  if (CreateCpuBackend({1, Isa::kAvx512}).ok()) params.push_back(ParamOf("avx512", Isa::kAvx512));
  return params;
}

INSTANTIATE_TEST_SUITE_P(Cpu, BackendConformanceTest, testing::ValuesIn(Params()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace baton
