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
  KernelTable kernels;               // kernels that `runtime` can run
  // First part of numerics_id(). The emulated device has another name than real devices, because
  // its GEMMs sum in another order.
  std::string name = "cuda";
  // True if decode steps (one row per sequence) are recorded and run as graphs (StepGraphs).
  // Without graphs they run the same operations and give the same bits.
  bool graphs = true;
  StepGraphCounts* graph_counts = nullptr;  // the backend updates these counts; may be null
  // False if the caller calls neither Gemm nor Logits. The runtime then need not support GEMMs.
  bool gemms = true;
  // Max bytes of partial results of attention. Steps that need more are computed in parts, and are
  // not recorded.
  size_t max_partial_bytes = size_t{64} << 20;
};

// A backend on a CUDA device or on the emulated device. Activations and weights are bf16; sums and
// logits are float. Each operation rounds once, when it writes its result; a GEMM with a bias that
// adds to its output rounds twice. Weights of other types are rounded to bf16 when they are loaded.
// KvView::data is memory of the same device; the pool may have any element type. Operations are
// enqueued on one stream, in order. Steps within the limits given to Reserve allocate nothing.
//
// All operations except GEMMs give a row the same bits in every batch. On the emulated device,
// GEMMs do so too. On a GPU, cuBLASLt chooses the kernel of a GEMM by the number of rows. So a
// row's result may differ by rounding between batch sizes, but the same batch gives the same bits.
//
// Returns FailedPrecondition, with the message of DeviceRuntime::GemmStatus, if options.gemms is
// true and the runtime has no GEMMs.
//
// Operations return InvalidArgument for heads of more than 256 elements, more than 65,535 KV heads,
// weights that LoadWeight did not return, a row that belongs to two sequences, and a `step` other
// than the one whose operations are being called.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options);

}  // namespace baton
