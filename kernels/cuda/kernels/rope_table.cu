#include "kernels/cuda/kernels/step_rows.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Each thread block takes a row, each thread one pair at a time. Writes 8 bytes per pair, once for
// all layers.
BATON_KERNEL(rope_table, RopeTableParams, 1024) {
  const int row = BlockX();
  const RowPlace place = PlaceOf(params.step, row);
  if (place.sequence >= 0) {
    const DeviceRope rope = params.ropes[params.shared ? 0 : place.sequence];
    float* const cosine = params.table + static_cast<int64_t>(row) * 2 * params.max_pairs;
    float* const sine = cosine + params.max_pairs;
    for (int pair = ThreadIndex(); pair < rope.pairs; pair += BlockThreads()) {
      const float angle =
          static_cast<float>(place.position) * params.frequencies[rope.first_frequency + pair];
      cosine[pair] = Cos(angle) * rope.scale;
      sine[pair] = Sin(angle) * rope.scale;
    }
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
