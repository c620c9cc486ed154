// Matrix products of floats, plainly: for correctness, not for speed.
//
// D [rows, columns] = sum over k of A [rows, k] * B [k, columns], as in tile.cuh. A block makes
// SIDE x SIDE values of D. Operands are functions of their line and k, gathered value by value into
// shared memory, DEPTH values of k at a time; those are summed by fused multiply-adds in order of
// k, or with PRODUCTS_IN_TF32 on tensor cores, which round the factors; and then added to the sums
// before. So the error of a sum grows only with the number of k-blocks.
#pragma once
#include "conv.cuh"
#include "ptx_tf32.cuh"
#include "real.cuh"
#include "tile.cuh"

constexpr int SIDE = 64, THREADS = SmallTile::THREADS, DEPTH = SmallTile::DEPTH;
constexpr int PITCH = DEPTH + 4;  // floats of a line: those of eight lines lie in different banks

// The values of D that a thread holds: of each 16 x 8 tile of its warp's 32 x 32, rows lane / 4 and
// lane / 4 + 8, columns lane % 4 * 2 and the next.
struct PlainSums {
  float of[2][4][4];
  DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < 32; i++) of[i / 16][i / 4 % 4][i % 4] = 0.0f;
  }
  DEVICE void add(const PlainSums& other) {
#pragma unroll
    for (int i = 0; i < 32; i++) of[i / 16][i / 4 % 4][i % 4] += other.of[i / 16][i / 4 % 4][i % 4];
  }
  // First row of tile i in D, first column of tile j.
  static DEVICE int row(int i) { return threadIdx.x / 32 % 2 * 32 + i * 16; }
  static DEVICE int column(int j) { return threadIdx.x / 64 * 32 + j * 8; }
};

// sums += the product of lines of DEPTH values of k: rows of D in `a`, columns in `b`.
DEVICE void multiply_k_block(PlainSums& sums, const float* a, const float* b) {
  const int lane = threadIdx.x % 32;
#ifdef PRODUCTS_IN_TF32
#pragma unroll 1
  for (int k = lane % 4; k < DEPTH; k += 8) {
    for (int i = 0; i < 2; i++) {
      const float* line = a + (sums.row(i) + lane / 4) * PITCH + k;
      const unsigned left[4] = {to_tf32(line[0]), to_tf32(line[8 * PITCH]), to_tf32(line[4]),
                                to_tf32(line[8 * PITCH + 4])};
      for (int j = 0; j < 4; j++) {
        const float* right = b + (sums.column(j) + lane / 4) * PITCH + k;
        multiply_16x8x8_tf32(sums.of[i][j], left, to_tf32(right[0]), to_tf32(right[4]));
      }
    }
  }
#else
#pragma unroll 1
  for (int k = 0; k < DEPTH; k++) {
    for (int i = 0; i < 2; i++) {
      const float* line = a + (sums.row(i) + lane / 4) * PITCH + k;
      for (int j = 0; j < 4; j++) {
        const float* right = b + (sums.column(j) + lane % 4 * 2) * PITCH + k;
        for (int e = 0; e < 4; e++)
          sums.of[i][j][e] = __fmaf_rn(line[e / 2 * 8 * PITCH], right[e % 2 * PITCH],
                                       sums.of[i][j][e]);
      }
    }
  }
#endif
}

// Shared memory of a block, in floats: both operands, and later its values of D.
constexpr int PLAIN_FLOATS = 2 * SIDE * PITCH;
static_assert(PLAIN_FLOATS >= SIDE * SIDE, "D fits");

// Writes the product over `k_len` values of k to `memory` [SIDE, SIDE]. `left(row, k)` and
// `right(column, k)` give values of A and B, counted from the block's first; they are asked for
// no k from k_len on. All threads of the block come; `memory` holds PLAIN_FLOATS. Returns the sum
// of A's row threadIdx.x, of threads that have one.
template <class Left, class Right>
DEVICE float multiply_plain(float* memory, int k_len, const Left& left, const Right& right) {
  float *const a = memory, *const b = memory + SIDE * PITCH;
  PlainSums sums;
  sums.clear();
  float row_sum = 0.0f;
#pragma unroll 1
  for (int first = 0; first < k_len; first += DEPTH) {
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < SIDE * DEPTH; i += THREADS) {
      const int line = i / DEPTH, k = first + i % DEPTH;
      a[line * PITCH + i % DEPTH] = k < k_len ? left(line, k) : 0.0f;
      b[line * PITCH + i % DEPTH] = k < k_len ? right(line, k) : 0.0f;
    }
    __syncthreads();
    PlainSums part;
    part.clear();
    multiply_k_block(part, a, b);
    sums.add(part);
    if (threadIdx.x < SIDE) {
      float of_block = 0.0f;
      for (int k = 0; k < DEPTH; k++) of_block += a[threadIdx.x * PITCH + k];
      row_sum += of_block;
    }
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float* to = memory + (sums.row(i) + lane / 4) * SIDE + sums.column(j) + lane % 4 * 2;
      to[0] = sums.of[i][j][0], to[1] = sums.of[i][j][1];
      to[8 * SIDE] = sums.of[i][j][2], to[8 * SIDE + 1] = sums.of[i][j][3];
    }
  }
  __syncthreads();
  return row_sum;
}

// Calls `store(sums, row, column)` for each eight columns of a row of D [rows, columns] that the
// block made, from `first_row` and `first_column` on.
template <class Store>
DEVICE void store_plain(const float* memory, int first_row, int first_column, int rows, int columns,
                        const Store& store) {
#pragma unroll 1
  for (int i = threadIdx.x; i < SIDE * SIDE / CHUNK; i += THREADS) {
    const int line = i / (SIDE / CHUNK), at = i % (SIDE / CHUNK) * CHUNK;
    const int row = first_row + line, column = first_column + at;
    if (row < rows && column < columns) store(memory + line * SIDE + at, row, column);
  }
}
