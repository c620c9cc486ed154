// Bias gradient: column sums of a gradient, as torch's sum over all but the last dimension.
//
//   g        [m * inner, k]          half/float  in       gradient; inner rows for each of m
//   count    [1]                     int         in       number of the m in use, or null
//   partial  [m * inner / chunk, k]  float       scratch  sums of each chunk of rows
//   db       [k]                     float       out      gradient of the bias
//
// Launch: bias_grad_partial uses a block of 256 per chunk of rows and 32 vectors of columns,
// bias_grad_total one per 32 columns.
// Cost: m * inner * k loads and adds; memory-bound (P2 of 12 images: 413 MB).
// Numerics: fp32 within a chunk, fp64 over the chunks, both in a fixed order.
// Edge cases: rows past the count are not read; without rows the sum is 0.
#include "platform.cuh"
#include "vector.cuh"

DEVICE int rows_in_use(const int* count, int m, int inner) {
  return (count == nullptr ? m : min(max(*count, 0), m)) * inner;
}

template <typename T, int W>
DEVICE void partial_sums(const T* g, const int* count, float* partial, int m, int inner, int k,
                         int chunk) {
  SHARED(float, scratch, WALK_BLOCK* W);
  const int begin = blockIdx.x * chunk, rows = rows_in_use(count, m, inner);
  if (begin >= rows) return;
  const int end = min(begin + chunk, rows);
  const RowWalk walk = row_walk(k / W, blockIdx.y);
  float sums[W];
  clear(sums);
  if (walk.active) {
    const T* from = g + walk.column * W;
    for (int row = begin + walk.lane; row < end; row += walk.lanes) {
      float v[W];
      load(v, from + (uint64_t)row * k);
      for (int i = 0; i < W; i++) sums[i] += v[i];
    }
  }
  const float sum = add_lanes(walk, sums, scratch);
  const int column = blockIdx.y * WALK_COLUMNS * W + threadIdx.x;
  if ((int)threadIdx.x < walk.width * W && column < k)
    partial[(uint64_t)blockIdx.x * k + column] = sum;
}

#define BIAS_GRAD_PARTIAL(name, T, W)                                                             \
  KERNEL(256)                                                                                     \
  name(const T* RESTRICT g, const int* RESTRICT count, float* RESTRICT partial, int m, int inner, \
       int k, int chunk) {                                                                        \
    partial_sums<T, W>(g, count, partial, m, inner, k, chunk);                                    \
  }
BIAS_GRAD_PARTIAL(bias_grad_partial_f16x8, half, 8)
BIAS_GRAD_PARTIAL(bias_grad_partial_f16, half, 1)
BIAS_GRAD_PARTIAL(bias_grad_partial_f32x8, float, 8)
BIAS_GRAD_PARTIAL(bias_grad_partial_f32, float, 1)

KERNEL(256)
bias_grad_total(const float* RESTRICT partial, const int* RESTRICT count, float* RESTRICT db, int m,
                int inner, int k, int chunk) {
  SHARED(double, scratch, WALK_BLOCK);
  add_rows(partial, ceil_div(rows_in_use(count, m, inner), chunk), k, db, scratch);
}
