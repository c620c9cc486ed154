// Copies between weight gradients and a contiguous fp16 bucket that packs many of them.
//
// fill_bucket, for each of up to 64 gradients:
//   grad    [len]    float  in   the gradient
//   bucket  [total]  real   out  grad times scale, from element first on
//
// empty_bucket, for each of up to 64 gradients:
//   grad    [len]    float  out  the gradient
//   bucket  [total]  real   in   holds the gradient from element first on
//
// Launch: blocks of 256 threads, 4,096 elements per block; first_block maps blocks to gradients.
// Cost: 6 bytes per element, 0.26 GB for the 44 million of Mask R-CNN R50-FPN; memory-bound.
// Numerics: multiplied in fp32, rounded once; empty_bucket is exact.
// Edge cases: a value beyond fp16 becomes infinite. A gradient without elements has no block.
//
// The elements of a bucket have no gaps, so a gradient may begin anywhere in it: at a multiple of
// 16 bytes threads copy vectors, elsewhere adjacent single elements.
#include "many_tensors.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

constexpr int CAPACITY = 64;  // gradients per launch: the struct stays under 4 KiB
constexpr int ROUNDS = 2;     // vectors per thread
constexpr int BLOCK_ELEMENTS = THREADS * WIDE * ROUNDS;

// The gradients of a launch. Same layout as the struct that the launch builds.
struct Gradients {
  float* grad[CAPACITY];
  uint64_t len[CAPACITY];     // elements
  uint64_t first[CAPACITY];   // offset in the bucket
  int first_block[CAPACITY];  // after the last gradient: the number of blocks
};
static_assert(sizeof(Gradients) == 28 * CAPACITY, "the launch builds it");

// The elements that a block copies.
struct Span {
  int i;           // the gradient
  uint64_t first;  // first of the gradient's elements
  int len;
};

DEVICE Span span_of(const Gradients& in) {
  const int i = tensor_of(in.first_block, blockIdx.x);
  const uint64_t first = (uint64_t)(blockIdx.x - in.first_block[i]) * BLOCK_ELEMENTS;
  const uint64_t left = in.len[i] - first;
  return {i, first, left < BLOCK_ELEMENTS ? (int)left : BLOCK_ELEMENTS};
}

// to[k] = scale * from[k] in rounds of W elements per thread, all loads first.
template <int W, typename TO, typename FROM>
DEVICE void copy_block(TO* RESTRICT to, const FROM* RESTRICT from, float scale) {
  constexpr int COUNT = BLOCK_ELEMENTS / (THREADS * W);
  float v[COUNT][W];
#pragma unroll
  for (int i = 0; i < COUNT; i++) load(v[i], from + (i * THREADS + threadIdx.x) * W);
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    for (int k = 0; k < W; k++) v[i][k] *= scale;
    store(to + (i * THREADS + threadIdx.x) * W, v[i]);
  }
}

DEVICE bool is_aligned(const real* place) { return (uint64_t)place % (WIDE * sizeof(real)) == 0; }

template <typename TO, typename FROM>
DEVICE void copy_span(TO* RESTRICT to, const FROM* RESTRICT from, bool aligned, float scale,
                      int len) {
  if (len == BLOCK_ELEMENTS && aligned) {
    copy_block<WIDE>(to, from, scale);
  } else if (len == BLOCK_ELEMENTS) {
    copy_block<1>(to, from, scale);
  } else {
    for (int k = threadIdx.x; k < len; k += THREADS) {
      float v[1];
      load(v, from + k);
      v[0] *= scale;
      store(to + k, v);
    }
  }
}

KERNEL(THREADS) fill_bucket(const Gradients in, real* RESTRICT bucket, float scale) {
  const Span span = span_of(in);
  real* const place = bucket + in.first[span.i] + span.first;
  const float* const from = in.grad[span.i] + span.first;
  copy_span(place, from, is_aligned(place), scale, span.len);
}

KERNEL(THREADS) empty_bucket(const Gradients in, const real* RESTRICT bucket) {
  const Span span = span_of(in);
  const real* const place = bucket + in.first[span.i] + span.first;
  copy_span(in.grad[span.i] + span.first, place, is_aligned(place), 1.0f, span.len);
}
