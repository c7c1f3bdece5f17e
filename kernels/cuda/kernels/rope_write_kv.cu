#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/octet.h"
#include "kernels/cuda/kernels/step_rows.h"

namespace baton::BATON_DEVICE_NAMESPACE {

namespace {

// Rotates up to eight pairs of one head, from pair `begin` on. Reads and writes both elements of
// each pair.
template <typename T>
BATON_DEVICE void RotatePairs(const Bf16* from, const float* cosine, const float* sine, int pairs,
                              int begin, T* to) {
  const int count = pairs - begin;
  float low[kOctet], high[kOctet], c[kOctet], s[kOctet];
  LoadOctet(from + begin, count, low);
  LoadOctet(from + pairs + begin, count, high);
  LoadOctet(cosine + begin, count, c);
  LoadOctet(sine + begin, count, s);
  BATON_UNROLL
  for (int i = 0; i < kOctet; ++i) {
    const float x = low[i], y = high[i];
    low[i] = x * c[i] - y * s[i];
    high[i] = y * c[i] + x * s[i];
  }
  StoreOctet(to + begin, count, low);
  StoreOctet(to + pairs + begin, count, high);
}

template <typename T>
BATON_DEVICE void CopyOctet(const Bf16* from, int end, int begin, T* to) {
  float values[kOctet];
  LoadOctet(from + begin, end - begin, values);
  StoreOctet(to + begin, end - begin, values);
}

template <typename T>
BATON_DEVICE void RotateAndWriteRow(const RopeWriteKvParams& params, int row,
                                    const RowPlace& place) {
  const LayerPages& pages = params.pages;
  const int head_dim = pages.head_dim;
  const int pairs = params.ropes[params.shared ? 0 : place.sequence].pairs;
  const float* const cosine = params.table + static_cast<int64_t>(row) * 2 * params.max_pairs;
  const float* const sine = cosine + params.max_pairs;
  const int32_t* const blocks = BlocksOf(params.step, place);
  Bf16* const q = static_cast<Bf16*>(params.q) + row * params.q_stride;
  const Bf16* const k = static_cast<const Bf16*>(params.k) + row * params.k_stride;
  const Bf16* const v = static_cast<const Bf16*>(params.v) + row * params.v_stride;

  // Work items for threads, in this order: rotated pairs of q, rotated pairs of k, elements of k
  // that are not rotated, and elements of v. An item is an octet: eight neighbouring pairs or
  // elements.
  const int turned = Octets(pairs), still = Octets(head_dim - 2 * pairs), whole = Octets(head_dim);
  const int after_q = params.heads * turned;
  const int after_k = after_q + pages.kv_heads * turned;
  const int after_ends = after_k + pages.kv_heads * still;
  const int all = after_ends + pages.kv_heads * whole;
  for (int item = ThreadIndex(); item < all; item += BlockThreads()) {
    if (item < after_q) {
      Bf16* const head = q + item / turned * head_dim;
      RotatePairs(head, cosine, sine, pairs, item % turned * kOctet, head);
    } else if (item < after_k) {
      const int head = (item - after_q) / turned;
      RotatePairs(k + head * head_dim, cosine, sine, pairs, (item - after_q) % turned * kOctet,
                  Slot<T>(pages, pages.key_offset, blocks, place.position, head));
    } else if (item < after_ends) {
      const int head = (item - after_k) / still;
      CopyOctet(k + head * head_dim, head_dim, 2 * pairs + (item - after_k) % still * kOctet,
                Slot<T>(pages, pages.key_offset, blocks, place.position, head));
    } else {
      const int head = (item - after_ends) / whole;
      CopyOctet(v + head * head_dim, head_dim, (item - after_ends) % whole * kOctet,
                Slot<T>(pages, pages.value_offset, blocks, place.position, head));
    }
  }
}

}  // namespace

// Each thread block takes a row. Each thread takes octets (groups of eight elements) of the row's
// heads. Memory traffic: 4 bytes per rotated element of q; per element of k and v, 2 bytes and one
// element of the pool's type.
BATON_KERNEL(rope_write_kv, RopeWriteKvParams, 256) {
  const int row = BlockX();
  const RowPlace place = PlaceOf(params.step, row);
  if (place.sequence >= 0) {
    switch (params.pages.type) {
      case DType::kF32:
        RotateAndWriteRow<float>(params, row, place);
        break;
      case DType::kF16:
        RotateAndWriteRow<Half>(params, row, place);
        break;
      case DType::kBF16:
        RotateAndWriteRow<Bf16>(params, row, place);
        break;
    }
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
