// Filters times a scale each, for up to 64 tensors; w * scale.view(-1, 1, 1, 1).
//
//   w       [K, filter]  real   in   filters, `filter` values each
//   scale   [K]          float  in   scale of each filter
//   scaled  [K, filter]  real   out  w * scale
//
// Launch: blocks of 256 threads, 4,096 elements per block; first_block maps blocks to tensors.
// Cost: 4 bytes per element, 94 MB for the trained stages of ResNet-50; memory-bound.
// Numerics: multiplied in fp32, rounded once.
// Edge cases: a tensor without elements has no block.
#include "many_tensors.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

constexpr int CAPACITY = 64;  // tensors per launch: the struct stays under 4 KiB
constexpr int BLOCK_ELEMENTS = 4096;

// The tensors of a launch. Same layout as the struct that the launch builds.
struct Weights {
  const real* w[CAPACITY];
  const float* scale[CAPACITY];
  real* scaled[CAPACITY];
  int len[CAPACITY];          // elements
  int filter[CAPACITY];       // elements per filter
  int first_block[CAPACITY];  // after the last tensor: the number of blocks
};
static_assert(sizeof(Weights) == 36 * CAPACITY, "the launch builds it");

template <int W>
DEVICE void scale_span(const Weights& in, int i, int first, int end) {
  for (int at = first + threadIdx.x * W; at < end; at += THREADS * W) {
    const float factor = in.scale[i][at / in.filter[i]];
    float v[W];
    load(v, in.w[i] + at);
    for (int k = 0; k < W; k++) v[k] *= factor;
    store(in.scaled[i] + at, v);
  }
}

KERNEL(THREADS) scale_weights(const Weights in) {
  const int i = tensor_of(in.first_block, blockIdx.x);
  const int first = ((int)blockIdx.x - in.first_block[i]) * BLOCK_ELEMENTS;
  const int end = min(first + BLOCK_ELEMENTS, in.len[i]);
  // Each vector is within one filter.
  if (in.filter[i] % WIDE == 0)
    scale_span<WIDE>(in, i, first, end);
  else
    scale_span<1>(in, i, first, end);
}
