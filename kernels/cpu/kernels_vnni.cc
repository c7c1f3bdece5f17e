// The order of the headers matters: each one uses the headers above it.
// clang-format off
#include "kernels/cpu/bytes_vnni.h"
#include "kernels/cpu/quantised_inl.h"
// clang-format on

namespace baton::cpu {

const QuantisedKernels kQuantisedVnni = QuantisedTable<>("avx512-vnni");

}  // namespace baton::cpu
