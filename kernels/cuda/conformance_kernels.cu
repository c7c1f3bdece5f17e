#include "kernels/cuda/conformance_kernels.h"
#include "kernels/cuda/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

BATON_KERNEL(kAdd, AddParams, kAddThreads) {
  const int i = BlockX() * BlockThreads() + ThreadIndex();
  if (i < params.count) params.to[i] = params.from[i] + params.value;
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
