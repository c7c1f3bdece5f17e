// Products of quantised weights with more than a few rows of activations by tdpbsud.
//
// The order of the headers matters: each one uses the headers above it.
// clang-format off
#include "kernels/cpu/bytes_vnni.h"
#include "kernels/cpu/quantised_inl.h"
#include "kernels/cpu/byte_tiles.h"
// clang-format on

namespace baton::cpu {

const QuantisedKernels kQuantisedAmx = QuantisedTable<ByteTiles>("amx-int8", &kQuantisedVnni);

}  // namespace baton::cpu
