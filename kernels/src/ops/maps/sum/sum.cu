// Sum of tensors of the same shape, y = x_0 + x_1 + .., in this order.
//
//   x       [len]  half/float  in   one of up to 32 tensors
//   before  [len]  float       in   sum of earlier launches' terms, or null
//   carry   [len]  float       out  the sum in fp32, written instead of y, or null
//   y       [len]  half/float  out  the sum, with the type of x
//
// Launch: a thread per 8 elements, blocks of 256.
// Cost: (terms + 1) * len elements moved; memory-bound.
// Numerics: fp32 in the order of the terms, rounded once for any number of launches.
// Edge cases: a tail of fewer than 8 elements is added one by one.
#include "platform.cuh"
#include "vector.cuh"

constexpr int MAX_TERMS = 32;  // per launch; more would need too much kernel parameter space
struct Terms {
  const void* x[MAX_TERMS];
};
static_assert(sizeof(Terms) == 8 * MAX_TERMS, "as the launch lays it out");

template <typename T, int W>
DEVICE void add_terms(const Terms& terms, int count, const float* before, float* carry, T* y,
                      uint64_t at) {
  float sum[W], v[W];
  // The first term is copied: 0 + x would turn -0 into 0.
  if (before != nullptr)
    load(sum, before + at);
  else
    load(sum, (const T*)terms.x[0] + at);
  for (int term = before == nullptr; term < count; term++) {
    load(v, (const T*)terms.x[term] + at);
    for (int i = 0; i < W; i++) sum[i] += v[i];
  }
  if (carry != nullptr)
    store(carry + at, sum);
  else
    store(y + at, sum);
}

template <typename T>
DEVICE void sum(const Terms& terms, int count, const float* before, float* carry, T* y,
                uint64_t len) {
  const uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * WIDE;
  if (first + WIDE <= len) {
    add_terms<T, WIDE>(terms, count, before, carry, y, first);
  } else {
    for (uint64_t i = first; i < len; i++) add_terms<T, 1>(terms, count, before, carry, y, i);
  }
}

KERNEL(256)
sum_f16(Terms terms, int count, const float* before, float* carry, half* RESTRICT y, uint64_t len) {
  sum(terms, count, before, carry, y, len);
}

KERNEL(256)
sum_f32(Terms terms, int count, const float* before, float* carry, float* RESTRICT y,
        uint64_t len) {
  sum(terms, count, before, carry, y, len);
}
