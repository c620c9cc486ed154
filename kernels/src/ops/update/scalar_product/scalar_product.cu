// Product of two scalars.
//
//   a  [1]  float  in   factor
//   b  [1]  float  in   factor
//   y  [1]  float  out  the product
//
// Launch: one block of 256 threads, of which one works.
// Cost: 12 bytes; the launch itself.
// Numerics: fp32, rounded once.
// Edges: none.
#include "platform.cuh"

KERNEL(256) scalar_product(const float* RESTRICT a, const float* RESTRICT b, float* RESTRICT y) {
  if (threadIdx.x == 0) *y = *a * *b;
}
