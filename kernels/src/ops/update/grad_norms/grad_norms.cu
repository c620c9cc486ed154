// L2 norms of gradients, the norm of all, and whether every element is finite;
// torch.linalg.vector_norm of each and of the list.
//
//   grad           [len]           float   in       one of n gradients
//   norms          [n + 1]         float   out      last: the norm of all
//   finite         [1]             int     out      1 if every element is finite
//   partials       [num_partials]  double  scratch  sum of squares of each block
//   first_partial  [n]             int     scratch  index of a tensor's first partial
//
// Launch: grad_norms_squares in blocks of 256 threads and 8,192 elements, at most 128 tensors per
// launch; grad_norms_roots is one block, a warp per tensor.
// Cost: 4 bytes per element, 176 MB for the 44 million of Mask R-CNN R50-FPN; memory-bound: the
// sums in double take a fifth of the time of the reads.
// Numerics: squares summed in double, in an order that depends only on shapes.
// Edge cases: a tensor without elements has a block too; a norm beyond float becomes FLT_MAX.
//
// The sum of squares of finite floats cannot overflow double, so the total is non-finite exactly if
// an element is.
#include "many_tensors.cuh"
#include "reduce.cuh"

constexpr int CAPACITY = 128;  // tensors per launch: the struct stays under 4 KiB
constexpr int ROUNDS = 8;      // vectors per thread, all loads in flight
constexpr int BLOCK_ELEMENTS = THREADS * VECTOR * ROUNDS;
constexpr int ROOT_THREADS = 1024;
constexpr float FLOAT_MAX = 3.40282347e38f;

// The gradients of a launch. Same layout as the struct that the launch builds.
struct Gradients {
  const float* grad[CAPACITY];
  uint64_t len[CAPACITY];
  int first_block[CAPACITY];  // of each tensor; after the last, the number of blocks
  int first_tensor;           // index of the launch's first tensor
  int blocks_before;          // number of blocks in earlier launches
};
static_assert(sizeof(Gradients) == 20 * CAPACITY + 8, "the launch builds it");

DEVICE double square(float v) { return (double)v * (double)v; }

KERNEL(THREADS)
grad_norms_squares(const Gradients in, double* RESTRICT partials, int* RESTRICT first_partial) {
  SHARED(double, scratch, 32);
  const int i = tensor_of(in.first_block, blockIdx.x), block = blockIdx.x - in.first_block[i];
  const float* const grad = in.grad[i];
  const uint64_t len = in.len[i];
  const uint64_t first = (uint64_t)block * BLOCK_ELEMENTS + threadIdx.x * VECTOR;
  double sum = 0.0;
  if (first + (ROUNDS - 1) * THREADS * VECTOR + VECTOR <= len) {
    float4 v[ROUNDS];
#pragma unroll
    for (int k = 0; k < ROUNDS; k++) v[k] = *(const float4*)(grad + first + k * THREADS * VECTOR);
#pragma unroll
    for (int k = 0; k < ROUNDS; k++)
      sum += (square(v[k].x) + square(v[k].y)) + (square(v[k].z) + square(v[k].w));
  } else {
    for (int k = 0; k < ROUNDS; k++) {
      const uint64_t from = first + k * THREADS * VECTOR;
      for (uint64_t at = from; at < from + VECTOR && at < len; at++) sum += square(grad[at]);
    }
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x > 0) return;
  const int partial = in.blocks_before + blockIdx.x;
  partials[partial] = sum;
  if (block == 0) first_partial[in.first_tensor + i] = partial;
}

DEVICE bool is_finite(double v) { return fabs(v) < INFINITY; }

// Square root, clamped to the range of float if the sum is finite.
DEVICE float root(double sum) {
  return is_finite(sum) ? (float)fmin(sqrt(sum), (double)FLOAT_MAX) : (float)sum;
}

KERNEL(ROOT_THREADS)
grad_norms_roots(const double* RESTRICT partials, const int* RESTRICT first_partial,
                 int num_partials, int n, float* RESTRICT norms, int* RESTRICT finite) {
  SHARED(double, scratch, 32);
  const int lane = threadIdx.x % 32;
  double all = 0.0;  // over the warp's tensors, in lane 0
  for (int i = threadIdx.x / 32; i < n; i += blockDim.x / 32) {
    const int end = i + 1 < n ? first_partial[i + 1] : num_partials;
    double sum = 0.0;
    for (int k = first_partial[i] + lane; k < end; k += 32) sum += partials[k];
    sum = warp_sum(sum);
    if (lane > 0) continue;
    norms[i] = root(sum);
    all += sum;
  }
  all = block_sum(all, scratch);
  if (threadIdx.x > 0) return;
  norms[n] = root(all);
  *finite = is_finite(all) ? 1 : 0;
}
