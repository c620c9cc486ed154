// Gradient of a ReLU: g = dy where y > 0, else 0; torch's threshold_backward.
//
//   dy  [len]  half  in   gradient of the output
//   y   [len]  half  in   the ReLU's output
//   g   [len]  half  out  gradient of the input
//
// Launch: a thread per 8 elements, blocks of 256.
// Cost: 6 bytes per element; memory-bound.
// Numerics: exact.
// Edges: a NaN in y passes nothing.
#include "platform.cuh"

constexpr int VECTOR = 8;  // halves in a 16-byte load

KERNEL(256)
relu_mask_f16(const half* RESTRICT dy, const half* RESTRICT y, half* RESTRICT g, uint64_t len) {
  const uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (first >= len) return;
  const half zero = __float2half_rn(0.0f);
  if (first + VECTOR <= len) {
    uint4 gs = *(const uint4*)(dy + first), ys = *(const uint4*)(y + first);
    half* gv = (half*)&gs;
    const half* yv = (const half*)&ys;
    for (int i = 0; i < VECTOR; i++) gv[i] = __half2float(yv[i]) > 0.0f ? gv[i] : zero;
    *(uint4*)(g + first) = gs;
  } else {
    for (uint64_t i = first; i < len; i++) g[i] = __half2float(y[i]) > 0.0f ? dy[i] : zero;
  }
}
EXPORT(relu_mask_f16)
