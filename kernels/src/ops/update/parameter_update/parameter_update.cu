// Norms of weights, averages and statistics, shared by optimizer rules.
//
// update_squares, for LARS:
//   control  [1]       Control     in       apply or skip
//   w        [len]     half/float  in       one of up to 64 weights
//   p        [len]     float       in       its master, or null
//   sums     [blocks]  double      out      sum of squares of each block
//
// update_stats, after an update kernel named .._sums:
//   sums     [blocks, 3]  double   in       per block: weights, their squares, gradients
//   stats    [n, 3]       float    out      mean and L2 norm of a weight, mean of its gradient
//
// average, after count_average:
//   control   [1]    Control  in     apply or skip
//   w         [len]  float    in     one of up to 64 updated weights, or null
//   p         [len]  float    in     its master, or null
//   m         [len]  float    state  its average
//   averaged  [1]    int      in     updates averaged, including this one
//
// Launch: blocks of 256 threads, 4,096 elements per block; first_block maps blocks to parameters;
// statistics are one block, a warp per parameter.
// Cost: 4 bytes per element of a norm, 12 of an average; memory-bound.
// Numerics: sums in double; an average in fp32, the CPU's operations in its order.
// Edge cases: a skipped step changes no average.
#include "update.cuh"

template <typename T>
DEVICE double squares(const T* RESTRICT weight, uint64_t first, uint64_t len) {
  double sum = 0.0;
  for (int i = 0; i < ROUNDS; i++) {
    const uint64_t from = first + threadIdx.x * VECTOR + i * THREADS * VECTOR;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (from + VECTOR <= len) {
      v = load4(weight + from);
    } else {
      if (from < len) v.x = load1(weight + from);
      if (from + 1 < len) v.y = load1(weight + from + 1);
      if (from + 2 < len) v.z = load1(weight + from + 2);
    }
    sum += ((double)v.x * v.x + (double)v.y * v.y) + ((double)v.z * v.z + (double)v.w * v.w);
  }
  return sum;
}

KERNEL(THREADS)
update_squares(const Control* RESTRICT control, const Parameters in, double* RESTRICT sums) {
  SHARED(double, scratch, 32);
  if (control->applied == 0.0f) return;
  const int i = tensor_of(in.first_block, blockIdx.x);
  const uint64_t first = (uint64_t)(blockIdx.x - in.first_block[i]) * BLOCK_ELEMENTS;
  double sum = 0.0;
  if (in.p[i])
    sum = squares(in.p[i], first, in.len[i]);
  else if (in.is_half(i))
    sum = squares((const half*)in.w[i], first, in.len[i]);
  else
    sum = squares((const float*)in.w[i], first, in.len[i]);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

struct AverageParameters : Parameters {
  double decay, root;
};
static_assert(sizeof(AverageParameters) == sizeof(Parameters) + 16, "the launch builds it");

KERNEL(32)
count_average(const Control* RESTRICT control, int* RESTRICT averaged) {
  if (control->applied != 0.0f && threadIdx.x == 0) *averaged = (int)((unsigned)*averaged + 1);
}

KERNEL(THREADS)
average(const Control* RESTRICT control, const AverageParameters in, const int* RESTRICT averaged) {
  SHARED(float, shared, 1);
  if (control->applied == 0.0f) return;
  if (threadIdx.x == 0)
    shared[0] = (float)(1.0 - in.decay * (1.0 - power(in.root, (unsigned)*averaged)));
  __syncthreads();
  const float take = shared[0];
  const int i = tensor_of(in.first_block, blockIdx.x);
  const float* const value = in.p[i] ? in.p[i] : (const float*)in.w[i];
  const uint64_t block = (uint64_t)(blockIdx.x - in.first_block[i]) * BLOCK_ELEMENTS;
  for (int k = 0; k < ROUNDS; k++) {
    const uint64_t from = block + threadIdx.x * VECTOR + k * THREADS * VECTOR;
    if (from + VECTOR <= in.len[i]) {
      const float4 v = load4(value + from);
      float4 e = load4(in.m[i] + from);
      e.x += take * (v.x - e.x), e.y += take * (v.y - e.y);
      e.z += take * (v.z - e.z), e.w += take * (v.w - e.w);
      store4(in.m[i] + from, e);
      continue;
    }
    for (uint64_t at = from; at < in.len[i] && at < from + VECTOR; at++)
      in.m[i][at] += take * (value[at] - in.m[i][at]);
  }
}

KERNEL(ROOT_THREADS)
update_stats(const Parameters in, const double* RESTRICT sums, float* RESTRICT stats) {
  statistics(in, sums, stats);
}
