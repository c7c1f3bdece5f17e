// The kernels of kernels_amxint8.cc for processors without AMX, which tests run.
#define BATON_EMULATED_TILES
// The order of the headers matters: each one uses the headers above it.
// clang-format off
#include "kernels/cpu/bytes_vnni.h"
#include "kernels/cpu/quantised_inl.h"
#include "kernels/cpu/byte_tiles.h"
// clang-format on

namespace baton::cpu {

extern const QuantisedKernels kQuantisedEmulatedAmx;  // Tests declare it, too.
const QuantisedKernels kQuantisedEmulatedAmx =
    QuantisedTable<ByteTiles>("emulated amx-int8", &kQuantisedVnni);

}  // namespace baton::cpu
