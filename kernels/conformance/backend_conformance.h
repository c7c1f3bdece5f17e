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

// A backend that computes, as the suite below needs it.
struct ConformanceParam {
  std::string name;
  // `threads` is a hint that results may not depend on.
  std::function<absl::StatusOr<std::unique_ptr<Backend>>(int threads)> create;
  // Memory that operations can use for weights, activations and KV, and copies into and out of it.
  std::function<std::shared_ptr<std::byte>(size_t bytes)> allocate;
  std::function<void(void*to, const void*from, size_t bytes)> upload, download;
  int max_threads = 4;
  // Products round their activations to bf16 where the weight is bf16.
  bool bf16_products = false;
  // Activations are bf16: each operation rounds what it writes. Weights are rounded to bf16 when
  // they are loaded.
  bool bf16_tensors = false;
  // Attention over KV of 16 bits rounds the weights of its softmax to the KV's type.
  bool rounded_attention_weights = false;
  // Thousands of times slower than a backend for use: the longest sequences are made shorter.
  bool slow = false;
  // A row of a product has the same bits whatever other rows there are.
  bool batch_invariant_products = true;
  // An error where the machine lacks what Gemm and Logits need: their tests are skipped, and say
  // so.
  absl::Status products = absl::OkStatus();
};

inline std::ostream& operator<<(std::ostream& out, const ConformanceParam& param) {
  return out << param.name;
}

// What every such backend must pass: each operation against plain double arithmetic, over odd
// sizes, types, views and block tables, with NaN in all memory that may not be read; and the same
// bits for every batch, chunk, block table and number of threads. Tolerances come from the type
// that results are rounded to and the length of the sums. The tests are in
// backend_conformance.cc and attention_conformance.cc, sources of each backend's own test, which
// says INSTANTIATE_TEST_SUITE_P.
class BackendConformanceTest : public testing::TestWithParam<ConformanceParam> {};

}  // namespace baton
