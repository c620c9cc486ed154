// Fills a tensor with one value.
//
//   y  [len]  half/float  out  the value everywhere
//
// Launch: a thread per 16 bytes, blocks of 256.
// Cost: one write; memory-bound.
// Numerics: the value is rounded to the tensor's type.
// Edge cases: a tail of less than 16 bytes is written element by element.
#include "platform.cuh"

template <typename T>
DEVICE void fill(T* y, T value, uint64_t len) {
  constexpr int COUNT = 16 / sizeof(T);
  const uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * COUNT;
  if (first >= len) return;
  if (first + COUNT <= len) {
    uint4 bits;
    for (int i = 0; i < COUNT; i++) ((T*)&bits)[i] = value;
    *(uint4*)(y + first) = bits;
  } else {
    for (uint64_t i = first; i < len; i++) y[i] = value;
  }
}

KERNEL(256) fill_f16(half* RESTRICT y, float value, uint64_t len) {
  fill(y, __float2half_rn(value), len);
}

KERNEL(256) fill_f32(float* RESTRICT y, float value, uint64_t len) { fill(y, value, len); }
