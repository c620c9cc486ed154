// Gradient of a ReLU: g = dy where y > 0, else 0; torch's threshold_backward.
//
//   dy  [len]  real  in   gradient of the output
//   y   [len]  real  in   the ReLU's output
//   g   [len]  real  out  gradient of the input
//
// Launch: a thread per 8 elements, blocks of 256.
// Cost: 6 bytes per element; memory-bound.
// Numerics: exact.
// Edge cases: where y is NaN, g is 0.
#include "real.cuh"

REALS(fp16, fp32)

constexpr int VECTOR = 8;  // halves in a 16-byte load, floats in two

KERNEL(256)
relu_mask_f16(const real* RESTRICT dy, const real* RESTRICT y, real* RESTRICT g, uint64_t len) {
  const uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (first >= len) return;
  const real zero = to_real(0.0f);
  if (first + VECTOR <= len) {
    Real8 gs = *(const Real8*)(dy + first), ys = *(const Real8*)(y + first);
    real* gv = (real*)&gs;
    const real* yv = (const real*)&ys;
    for (int i = 0; i < VECTOR; i++) gv[i] = to_float(yv[i]) > 0.0f ? gv[i] : zero;
    *(Real8*)(g + first) = gs;
  } else {
    for (uint64_t i = first; i < len; i++) g[i] = to_float(y[i]) > 0.0f ? dy[i] : zero;
  }
}
