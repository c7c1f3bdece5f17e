#include "kernels/device/code/device_code.h"
#include "kernels/device/conformance/conformance_kernels.h"

namespace baton::BATON_DEVICE_NAMESPACE {

BATON_KERNEL(kAdd, AddParams, kAddThreads) {
  const int i = BlockX() * BlockThreads() + ThreadIndex();
  if (i < params.count) params.to[i] = params.from[i] + params.value;
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
