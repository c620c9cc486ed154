// Filters times a factor of each, for up to 64 tensors; w * scale.view(-1, 1, 1, 1).
//
//   w       [K, filter]  real   in   filters, `filter` values each
//   scale   [K]          float  in   factor of a filter
//   scaled  [K, filter]  real   out  w * scale
//
// Launch: blocks of 256 threads, 4,096 elements a block; first_block maps a block to its tensor.
// Cost: 4 bytes per element, 94 MB for the trained stages of ResNet-50; memory-bound.
// Numerics: a product in fp32, rounded once.
// Edges: a tensor without elements has no block.
#include "many_tensors.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

constexpr int CAPACITY = 64;  // tensors of a launch: the struct stays under 4 KiB
constexpr int BLOCK_ELEMENTS = 4096;

// The tensors of a launch. Equal to the struct that the launch builds.
struct Weights {
  const real* w[CAPACITY];
  const float* scale[CAPACITY];
  real* scaled[CAPACITY];
  int len[CAPACITY];          // elements
  int filter[CAPACITY];       // elements of a filter
  int first_block[CAPACITY];  // past the last tensor, the blocks of the launch
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
  // A vector lies in one filter.
  if (in.filter[i] % WIDE == 0)
    scale_span<WIDE>(in, i, first, end);
  else
    scale_span<1>(in, i, first, end);
}
