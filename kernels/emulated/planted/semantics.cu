// Right kernels, to test the emulation itself: fp16, warp operations, fragments, block order.
#include "platform.cuh"
#include "ptx.cuh"
#include "reduce.cuh"

KERNEL(256) planted_round_to_half(const float* RESTRICT in, half* RESTRICT out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __float2half_rn(in[i]);
}
EXPORT(planted_round_to_half)

KERNEL(256) planted_widen_half(const half* RESTRICT in, float* RESTRICT out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __half2float(in[i]);
}
EXPORT(planted_widen_half)

// Rows of blockDim.x results, one for each operation.
KERNEL(64) planted_warp_operations(const int* RESTRICT in, int* RESTRICT out) {
  const int t = threadIdx.x, value = in[t], n = blockDim.x;
  int row = 0;
  auto put = [&](int result) { out[row++ * n + t] = result; };
  put(__shfl_sync(ALL_LANES, value, value));
  put(__shfl_sync(ALL_LANES, value, value, 8));
  put(__shfl_up_sync(ALL_LANES, value, 3));
  put(__shfl_down_sync(ALL_LANES, value, 5, 16));
  put(__shfl_xor_sync(ALL_LANES, value, 9));
  put((int)__ballot_sync(ALL_LANES, value % 3 == 0));
  put((int)__match_any_sync(ALL_LANES, value % 5));
  put(__any_sync(ALL_LANES, value > 40));
  put(__all_sync(ALL_LANES, value >= 0));
  // The halves of the warp each on their own.
  const unsigned mine = t % 32 < 16 ? 0xffffu : 0xffff0000u;
  put(t % 32 < 16 ? __shfl_xor_sync(mine, value, 1) : __shfl_xor_sync(mine, value, 2));
  put(__syncthreads_count(value % 2));
}
EXPORT(planted_warp_operations)

// r[0..4] of each lane, plain and transposed, for a matrix of 32 rows and 8 columns.
KERNEL(32) planted_fragments(const half* RESTRICT in, unsigned* RESTRICT out) {
  SHARED_2D(half, rows, 32, 8);
  const int lane = threadIdx.x;
  for (int i = 0; i < 8; i++) rows[lane][i] = in[lane * 8 + i];
  __syncthreads();
  unsigned r[4];
  load_matrix_x4(r, rows[lane]);
  for (int i = 0; i < 4; i++) out[lane * 8 + i] = r[i];
  load_matrix_x4_transposed(r, rows[lane]);
  for (int i = 0; i < 4; i++) out[lane * 8 + 4 + i] = r[i];
}
EXPORT(planted_fragments)

constexpr int TILE = 64, STEP = 16;

// c = a * b: a is [m, k], b is [k, n], both half by rows, c is [m, n] float; m and n are multiples
// of 64, k of 16. A block of 4 warps makes a 64 x 64 tile; each warp 16 rows of it.
KERNEL(128)
planted_gemm(const half* RESTRICT a, const half* RESTRICT b, float* RESTRICT c, int n, int k) {
  SHARED(half, as, 2 * TILE * (STEP + 8));
  SHARED(half, bs, 2 * STEP * (TILE + 8));
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  const int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
  auto load = [&](int stage, int at) {
    half* to = as + (stage * TILE + t / 2) * (STEP + 8) + t % 2 * 8;
    copy_async_16(to, a + (uint64_t)(row + t / 2) * k + at + t % 2 * 8);
    to = bs + (stage * STEP + t / 8) * (TILE + 8) + t % 8 * 8;
    copy_async_16(to, b + (uint64_t)(at + t / 8) * n + column + t % 8 * 8);
    copy_async_commit();
  };
  float sum[8][4] = {};
  load(0, 0);
  for (int at = 0, stage = 0; at < k; at += STEP, stage ^= 1) {
    if (at + STEP < k) {
      load(stage ^ 1, at + STEP);
      copy_async_wait<1>();
    } else {
      copy_async_wait<0>();
    }
    __syncthreads();
    unsigned fa[4], fb[4];
    const half* from = as + (stage * TILE + warp * 16 + lane % 16) * (STEP + 8);
    load_matrix_x4(fa, from + lane / 16 * 8);
    for (int j = 0; j < 4; j++) {
      from = bs + (stage * STEP + lane % 16) * (TILE + 8);
      load_matrix_x4_transposed(fb, from + j * 16 + lane / 16 * 8);
      multiply_16x8x16(sum[2 * j], fa, fb[0], fb[1]);
      multiply_16x8x16(sum[2 * j + 1], fa, fb[2], fb[3]);
    }
    __syncthreads();
  }
  for (int j = 0; j < 8; j++) {
    float* to = c + (uint64_t)(row + warp * 16 + lane / 4) * n + column + j * 8 + lane % 4 * 2;
    *(float2*)to = make_float2(sum[j][0], sum[j][1]);
    *(float2*)(to + 8 * n) = make_float2(sum[j][2], sum[j][3]);
  }
}
EXPORT(planted_gemm)

// Work for the clock: `n` shuffles, barriers or products a thread.
KERNEL(1024) planted_shuffles(float* RESTRICT out, int n) {
  float value = (float)threadIdx.x;
  for (int i = 0; i < n; i++) value += __shfl_xor_sync(ALL_LANES, value, 1 << (i % 5));
  out[threadIdx.x] = value;
}
EXPORT(planted_shuffles)
KERNEL(1024) planted_barriers(float* RESTRICT out, int n) {
  for (int i = 0; i < n; i++) __syncthreads();
  out[threadIdx.x] = (float)n;
}
EXPORT(planted_barriers)
KERNEL(1024) planted_products(float* RESTRICT out, int n) {
  const unsigned a[4] = {threadIdx.x, 0, 0, 0};
  float sum[4] = {};
  for (int i = 0; i < n; i++) multiply_16x8x16(sum, a, threadIdx.x, 1);
  out[threadIdx.x] = sum[0];
}
EXPORT(planted_products)
