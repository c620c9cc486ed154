// The exact Gaussian error linear unit y = x * P(Z <= x), and its gradient; torch's gelu.
//
//   x   [len]  real  in   input
//   g   [len]  real  in   gradient of y
//   y   [len]  real  out  output
//   dx  [len]  real  out  gradient of x
//
// Launch: a thread per 8 elements, blocks of 256.
// Cost: 4 bytes per element forward, 6 backward; memory-bound.
// Numerics: fp32 with erff and expf, rounded once.
// Edge cases: a tail of fewer than 8 elements is processed one by one.
#include "platform.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

// P(Z <= x).
DEVICE float probability(float x) { return 0.5f + 0.5f * erff(x * 0.70710678f); }

// dx / g.
DEVICE float slope(float x) {
  return probability(x) + x * 0.39894228f * expf(-0.5f * x * x);
}

template <int W, bool GRADIENT>
DEVICE void apply(const real* g, const real* x, real* out, uint64_t at) {
  float v[W], of_y[W];
  load(v, x + at);
  if constexpr (GRADIENT) load(of_y, g + at);
  for (int i = 0; i < W; i++) v[i] = GRADIENT ? of_y[i] * slope(v[i]) : v[i] * probability(v[i]);
  store(out + at, v);
}

template <bool GRADIENT>
DEVICE void over(const real* g, const real* x, real* out, uint64_t len) {
  const uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * WIDE;
  if (first + WIDE <= len) {
    apply<WIDE, GRADIENT>(g, x, out, first);
  } else {
    for (uint64_t i = first; i < len; i++) apply<1, GRADIENT>(g, x, out, i);
  }
}

KERNEL(256)
gelu_f16(const real* RESTRICT x, real* RESTRICT y, uint64_t len) {
  over<false>(nullptr, x, y, len);
}

KERNEL(256)
gelu_grad_f16(const real* RESTRICT g, const real* RESTRICT x, real* RESTRICT dx, uint64_t len) {
  over<true>(g, x, dx, len);
}
