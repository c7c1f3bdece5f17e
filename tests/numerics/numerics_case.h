#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace baton {

// One order of sums with one model.
struct NumericsCase {
  CpuNumerics numerics = CpuNumerics::kF32;
  std::string model;  // a folder of common/model/testdata, "demo", "long_f32" or "long_bf16"

  std::string Name() const;    // for a test
  std::string Folder() const;  // of the model
  // A model with room for more than one span of keys (1,024), too slow for many runs.
  bool IsLong() const;
  // The settings of the instruction set with which this machine can sum in the order of `numerics`.
  std::vector<CpuBackendOptions::Isa> Isas() const;

  friend void PrintTo(const NumericsCase& c, std::ostream* out) { *out << c.Name(); }
};

// Every order with every model whose weights it is for.
std::vector<NumericsCase> AllNumericsCases();

// Of an environment variable, or the other value.
uint32_t FromEnvironment(const char* name, uint32_t otherwise);

}  // namespace baton
