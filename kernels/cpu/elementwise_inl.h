#pragma once

// Element-wise operations. Only kernels_*.cc include this file, after dot_inl.h.
namespace baton::cpu {
namespace {

// Returns e^x within 1.5 units in the last place, with the same bits in every lane. The result is 0
// below -87.3365, infinite above 88.3762, NaN for NaN, and exactly 1 for 0. Range reduction and
// polynomial are those of Cephes' expf.
inline Vec Exp(Vec x) {
  const Vec n = RoundToEven(Mul(x, Broadcast(1.44269504088896341f)));
  Vec r = Fma(n, Broadcast(-0.693359375f), x);
  r = Fma(n, Broadcast(2.12194440e-4f), r);
  Vec p = Broadcast(1.9875691500e-4f);
  p = Fma(p, r, Broadcast(1.3981999507e-3f));
  p = Fma(p, r, Broadcast(8.3334519073e-3f));
  p = Fma(p, r, Broadcast(4.1665795894e-2f));
  p = Fma(p, r, Broadcast(1.6666665459e-1f));
  p = Fma(p, r, Broadcast(5.0000001201e-1f));
  p = Add(Fma(p, Mul(r, r), r), Broadcast(1.0f));
  const Vec y = Mul(p, PowerOfTwo(n));
  const Vec low = Broadcast(-87.3365f), high = Broadcast(88.3762f);
  return SelectLess(x, low, Zero(), SelectLess(high, x, Broadcast(__builtin_inff()), y));
}
inline float ExpOne(float x) {
  float lanes[kLanes];
  Store(lanes, Exp(Broadcast(x)));
  return lanes[0];
}

void ExpRow(const float* in, int n, float* out) {
  for (int i = 0; i < n; i += kLanes)
    StorePartial(out + i, Exp(LoadWidePartial(in + i, n - i)), n - i);
}

template <class T>
void WidenRow(const T* in, ptrdiff_t n, float* out) {
  ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, LoadWide(in + i));
  if (i < n) StorePartial(out + i, LoadWidePartial(in + i, n - i), n - i);
}

template <class T>
void NarrowRow(const float* in, ptrdiff_t n, T* out) {
  ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) StoreNarrow(out + i, Load(in + i));
  if (i < n) {
    T values[kLanes];
    StoreNarrow(values, LoadWidePartial(in + i, n - i));
    __builtin_memcpy(out + i, values, (n - i) * sizeof(T));
  }
}

void Widen(const void* in, Element type, ptrdiff_t n, float* out) {
  switch (type) {
    case Element::kF32:
      return WidenRow(static_cast<const float*>(in), n, out);
    case Element::kF16:
      return WidenRow(static_cast<const F16*>(in), n, out);
    case Element::kBf16:
      return WidenRow(static_cast<const Bf16*>(in), n, out);
  }
}

void Narrow(const float* in, ptrdiff_t n, Element type, void* out) {
  switch (type) {
    case Element::kF32:
      return NarrowRow(in, n, static_cast<float*>(out));
    case Element::kF16:
      return NarrowRow(in, n, static_cast<F16*>(out));
    case Element::kBf16:
      return NarrowRow(in, n, static_cast<Bf16*>(out));
  }
}

// RMS norm of one row: in * (1 / sqrt(mean of squares + epsilon)) * weight. The squares are summed
// in the same order as the products of a dot product (dot_inl.h).
template <class T>
void RmsNormRow(const float* in, const T* weight, float epsilon, int n, float* out) {
  Vec acc[kParts];
  for (int part = 0; part < kParts; ++part) acc[part] = Zero();
  for (int i = 0; i < n; i += 16) {
    for (int part = 0; part < kParts; ++part) {
      const int at = i + part * kLanes;
      const Vec x = at + kLanes <= n ? Load(in + at)
                    : at < n         ? LoadWidePartial(in + at, n - at)
                                     : Zero();
      acc[part] = Fma(x, x, acc[part]);
    }
  }
  float sums[16], sum[4];
  for (int part = 0; part < kParts; ++part) Store(sums + part * kLanes, acc[part]);
  ReduceFour(sums, sums, sums, sums, sum);
  const float inverse = 1.0f / __builtin_sqrtf(sum[0] / static_cast<float>(n) + epsilon);
  const Vec factor = Broadcast(inverse);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Store(out + i, Mul(Mul(Load(in + i), factor), LoadWide(weight + i)));
  }
  if (i < n) {
    const Vec x = LoadWidePartial(in + i, n - i);
    StorePartial(out + i, Mul(Mul(x, factor), LoadWidePartial(weight + i, n - i)), n - i);
  }
}

void RmsNorm(const float* in, const void* weight, Element type, float epsilon, int n, float* out) {
  switch (type) {
    case Element::kF32:
      return RmsNormRow(in, static_cast<const float*>(weight), epsilon, n, out);
    case Element::kF16:
      return RmsNormRow(in, static_cast<const F16*>(weight), epsilon, n, out);
    case Element::kBf16:
      return RmsNormRow(in, static_cast<const Bf16*>(weight), epsilon, n, out);
  }
}

inline Vec SiluMulVec(Vec gate, Vec up) {
  return Mul(Div(gate, Add(Broadcast(1.0f), Exp(Sub(Zero(), gate)))), up);
}

void SiluMul(const float* gate, const float* up, int n, float* out) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, SiluMulVec(Load(gate + i), Load(up + i)));
  if (i < n) {
    const Vec y = SiluMulVec(LoadWidePartial(gate + i, n - i), LoadWidePartial(up + i, n - i));
    StorePartial(out + i, y, n - i);
  }
}

// Rotates pairs: y0 = x0 * cos - x1 * sin, y1 = x1 * cos + x0 * sin. Each product is rounded.
inline void RotateVec(Vec x0, Vec x1, Vec c, Vec s, Vec* y0, Vec* y1) {
  *y0 = Sub(Mul(x0, c), Mul(x1, s));
  *y1 = Add(Mul(x1, c), Mul(x0, s));
}

void RotateHead(const float* in, int half, const float* cosine, const float* sine, float* out) {
  Vec y0, y1;
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    RotateVec(Load(in + i), Load(in + half + i), Load(cosine + i), Load(sine + i), &y0, &y1);
    Store(out + i, y0);
    Store(out + half + i, y1);
  }
  if (i < half) {
    const int n = half - i;
    RotateVec(LoadWidePartial(in + i, n), LoadWidePartial(in + half + i, n),
              LoadWidePartial(cosine + i, n), LoadWidePartial(sine + i, n), &y0, &y1);
    StorePartial(out + i, y0, n);
    StorePartial(out + half + i, y1, n);
  }
}

void Rotate(const RopeTask& task) {
  for (int head = 0; head < task.heads; ++head) {
    const float* in = task.in + head * task.head_dim;
    float* out = task.out + head * task.head_dim;
    RotateHead(in, task.pairs, task.cosine, task.sine, out);
    if (out == in) continue;
    for (int i = 2 * task.pairs; i < task.head_dim; ++i) out[i] = in[i];
  }
}

}  // namespace
}  // namespace baton::cpu
