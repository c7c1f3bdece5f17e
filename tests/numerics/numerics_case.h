#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace baton {

// A case of the tests: one model, computed in one summation order.
struct NumericsCase {
  CpuNumerics numerics = CpuNumerics::kF32;
  // Folder or GGUF file in common/model/testdata, or "demo", "long_f32", "long_bf16".
  std::string model;

  std::string Name() const;    // name for a test
  std::string Folder() const;  // folder or GGUF file of the model
  // Returns true for a model with long sequences. They have more keys than attention adds up in one
  // span (1,024 keys). Such a model is too slow for many runs.
  bool IsLong() const;
  // Returns the instruction sets of this machine that can compute in the summation order
  // `numerics`.
  std::vector<CpuBackendOptions::Isa> Isas() const;

  friend void PrintTo(const NumericsCase& c, std::ostream* out) { *out << c.Name(); }
};

// Returns every summation order with every model whose weight type it supports.
std::vector<NumericsCase> AllNumericsCases();

// Returns the value of an environment variable, or `otherwise` if it is not set.
uint32_t FromEnvironment(const char* name, uint32_t otherwise);

}  // namespace baton
