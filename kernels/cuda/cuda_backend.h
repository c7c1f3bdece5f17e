#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend/backend.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/step_graphs.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

struct CudaBackendOptions {
  DeviceRuntime* runtime = nullptr;  // must outlive the backend
  KernelTable kernels;               // that run on it
  // What numerics_id() begins with. The emulated device has another one than the real ones, whose
  // products are summed in another order.
  std::string name = "cuda";
  // Steps of one row of each sequence are recorded and run as graphs (StepGraphs). Without it they
  // are the same operations, and give the same bits.
  bool graphs = true;
  StepGraphCounts* graph_counts = nullptr;  // kept up to date, if it is there
  // False: the caller calls neither Gemm nor Logits, so the runtime may be without dense products.
  bool products = true;
  // For partial results of attention; steps that need more are done in parts, and not recorded.
  size_t most_partial_bytes = size_t{64} << 20;
};

// The maths on a CUDA device, or on the emulated one. Activations and weights are bf16, sums float,
// logits float; each operation rounds once where it writes, a product that adds a bias to what was
// there twice. Weights of other types are rounded to bf16 when they are loaded. KvView::data is
// memory of the same device; the pool may be of any type. Operations are enqueued on one stream, in
// order; nothing is allocated by steps within what Reserve was told.
//
// All but products give a row the same bits in every batch. Products are the runtime's: the
// emulated one's too, but cuBLASLt chooses its kernel by the number of rows, so there a row may
// differ by rounding from one batch size to another (the same batch gives the same bits).
//
// FailedPrecondition, with the words of DeviceRuntime::ProductStatus, for a runtime without dense
// products where options.products asks for them.
// InvalidArgument for heads of more than 256 elements, more than 65,535 KV heads, weights that
// LoadWeight did not give, a row that two sequences share, and an operation that names another step
// than the one whose operations are called.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options);

}  // namespace baton
