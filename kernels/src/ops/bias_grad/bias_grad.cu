// Gradient of a bias: column sums of a gradient. Matches the sum over all but the last dimension.
//
// Tensors: g [M * inner, K] half or float (in), count [1] int or null (in, rows of the M in use),
// db [K] float (out, overwritten); scratch partial [ceil(M * inner / chunk), K] float.
// Launch: `partial` has a block of 256 for each chunk of rows and 32 vectors of columns, `total`
// one for each 32 columns. Cost: M * inner * K loads and adds, bound by memory (P2 of 12 images:
// 413 MB). Numerics: fp32 within a chunk, fp64 over the chunks, both in a fixed order.
// Edges: rows past the count are not read; no rows give 0.
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
  }                                                                                               \
  EXPORT(name)
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
EXPORT(bias_grad_total)
