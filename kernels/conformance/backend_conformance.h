#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/backend/backend.h"

namespace baton {

// Describes one backend to the conformance suite: how to create it, and its numerical properties.
struct ConformanceParam {
  std::string name;
  // Creates a backend. `threads` is a hint; results may not depend on it.
  std::function<absl::StatusOr<std::unique_ptr<Backend>>(int threads)> create;
  // Allocates memory that operations can use. `upload` and `download` copy into it and out of it.
  std::function<std::shared_ptr<std::byte>(size_t bytes)> allocate;
  std::function<void(void*to, const void*from, size_t bytes)> upload, download;
  int max_threads = 4;
  // True if GEMMs with bf16 weights round their activations to bf16.
  bool bf16_gemms = false;
  // True if activations are bf16, so that each operation rounds what it writes. Weights are then
  // rounded to bf16 when they are loaded.
  bool bf16_tensors = false;
  // True if attention over 16-bit KV rounds its softmax weights to the KV's type.
  bool rounded_attention_weights = false;
  // True for an emulated device, which is thousands of times slower than a real one. The tests then
  // shorten their longest sequences.
  bool slow = false;
  // True if a row of a GEMM's result has the same bits whatever other rows the batch has.
  bool batch_invariant_gemms = true;
  // An error if this machine can't run Gemm and Logits. The tests of these two operations are then
  // skipped, with the message of this error.
  absl::Status gemms = absl::OkStatus();
};

inline std::ostream& operator<<(std::ostream& out, const ConformanceParam& param) {
  return out << param.name;
}

// Conformance tests for backends. They compare each operation with plain double arithmetic, over
// odd sizes, types, views and block tables, with NaN in all memory that may not be read. They also
// check that every batch, chunk, block table and number of threads gives the same bits. Tolerances
// follow from the type that results are rounded to and from the length of the sums. The tests are
// in backend_conformance.cc and attention_conformance.cc. The test program of each backend links
// these two files and calls INSTANTIATE_TEST_SUITE_P.
class BackendConformanceTest : public testing::TestWithParam<ConformanceParam> {};

}  // namespace baton
