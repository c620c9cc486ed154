// Epilogues: what happens to sums on their way out. Sums pass through shared memory, so that a
// thread has eight columns of a row and memory sees 16-byte writes.
#pragma once
#include "multiply.cuh"

// Eight values of a row of fp32, or of half widened to it, from column `column` of `columns`; past
// them zeros. In vectors where rows are multiples of 16 bytes.
DEVICE void load_columns(float (&v)[CHUNK], const float* row, int column, int columns) {
  if (columns % CHUNK == 0) {
    *(float4*)&v[0] = *(const float4*)(row + column);
    *(float4*)&v[4] = *(const float4*)(row + column + 4);
  } else {
#pragma unroll
    for (int e = 0; e < CHUNK; e++) v[e] = column + e < columns ? row[column + e] : 0.0f;
  }
}
DEVICE void load_columns(float (&v)[CHUNK], const half* row, int column, int columns) {
  if (columns % CHUNK == 0) {
    const uint4 words = *(const uint4*)(row + column);
    const half* halves = (const half*)&words;
#pragma unroll
    for (int e = 0; e < CHUNK; e++) v[e] = __half2float(halves[e]);
  } else {
#pragma unroll
    for (int e = 0; e < CHUNK; e++)
      v[e] = column + e < columns ? __half2float(row[column + e]) : 0.0f;
  }
}
DEVICE void store_columns(float* row, const float (&v)[CHUNK], int column, int columns) {
  if (columns % CHUNK == 0) {
    *(float4*)(row + column) = make_float4(v[0], v[1], v[2], v[3]);
    *(float4*)(row + column + 4) = make_float4(v[4], v[5], v[6], v[7]);
  } else {
#pragma unroll
    for (int e = 0; e < CHUNK; e++)
      if (column + e < columns) row[column + e] = v[e];
  }
}
DEVICE void store_columns(half* row, const float (&v)[CHUNK], int column, int columns) {
  if (columns % CHUNK == 0) {
    uint4 words;
    half* halves = (half*)&words;
#pragma unroll
    for (int e = 0; e < CHUNK; e++) halves[e] = __float2half_rn(v[e]);
    *(uint4*)(row + column) = words;
  } else {
#pragma unroll
    for (int e = 0; e < CHUNK; e++)
      if (column + e < columns) row[column + e] = __float2half_rn(v[e]);
  }
}

// y = relu(sum * scale + bias + residual) in half, each part if it is there. Rows without data
// get 0.
struct ActivationRows {
  half* y;
  const float *scale, *bias;  // of a column
  const half* residual;       // [rows, columns] as y
  int columns, relu;

  DEVICE void operator()(float (&v)[CHUNK], int row, int column, bool filled) const {
    const int64_t first = (int64_t)row * columns;
    float other[CHUNK];
    if (scale && filled) {
      load_columns(other, scale, column, columns);
#pragma unroll
      for (int e = 0; e < CHUNK; e++) v[e] *= other[e];
    }
    if (bias && filled) {
      load_columns(other, bias, column, columns);
#pragma unroll
      for (int e = 0; e < CHUNK; e++) v[e] += other[e];
    }
    if (residual && filled) {
      load_columns(other, residual + first, column, columns);
#pragma unroll
      for (int e = 0; e < CHUNK; e++) v[e] += other[e];
    }
#pragma unroll
    for (int e = 0; e < CHUNK; e++) {
      // Not max(), so that a NaN stays one.
      if (relu && v[e] < 0.0f) v[e] = 0.0f;
      if (!filled) v[e] = 0.0f;
    }
    store_columns(y + first, v, column, columns);
  }
};

// dw = sum * scale in fp32, the scale that of a row.
struct WeightRows {
  float* dw;
  const float* scale;
  int columns;

  DEVICE void operator()(float (&v)[CHUNK], int row, int column, bool) const {
    const float factor = scale ? scale[row] : 1.0f;
#pragma unroll
    for (int e = 0; e < CHUNK; e++) v[e] *= factor;
    store_columns(dw + (int64_t)row * columns, v, column, columns);
  }
};

// Hands on a block's tile of sums: to `finish`, or as they are to the partial sums of this split.
// `place(row, filled)` gives the output's row for one of D, or -1 for none, and whether it holds
// data. `partials` is null, or [gridDim.z, rows, columns]; rows without data are left out there.
template <class T, class Place, class Finish>
DEVICE void store_tile(const Sums<T>& sums, half* stages, int first_row, int first_column,
                       float* partials, int rows, int columns, Place place, const Finish& finish) {
  // Eight floats more than a line of columns put the four lines that write at once in other banks.
  constexpr int PITCH = T::WARP_COLUMNS + 8, LANES = T::WARP_COLUMNS / CHUNK;
  static_assert(4 * 16 * PITCH * 2 <= T::STAGES * T::STAGE, "the warps' slices fit the stages");
  const int lane = threadIdx.x % 32;
  float* slice = (float*)stages + threadIdx.x / 32 * (16 * PITCH);
  const int column = lane % LANES * CHUNK, d_column = first_column + warp_column<T>() + column;
#pragma unroll
  for (int i = 0; i < Sums<T>::ROWS; i++) {
#pragma unroll
    for (int j = 0; j < Sums<T>::COLUMNS; j++) {
      float* to = slice + lane / 4 * PITCH + j * 8 + lane % 4 * 2;
      *(float2*)to = make_float2(sums.of[i][j][0], sums.of[i][j][1]);
      *(float2*)(to + 8 * PITCH) = make_float2(sums.of[i][j][2], sums.of[i][j][3]);
    }
    __syncwarp();
#pragma unroll 1
    for (int line = lane / LANES; line < 16; line += 32 / LANES) {
      bool filled = true;
      const int row = place(first_row + warp_row<T>() + i * 16 + line, filled);
      if (row < 0 || d_column >= columns) continue;
      float v[CHUNK];
      *(float4*)&v[0] = *(const float4*)(slice + line * PITCH + column);
      *(float4*)&v[4] = *(const float4*)(slice + line * PITCH + column + 4);
      if (!partials) {
        finish(v, row, d_column, filled);
      } else if (filled) {
        float* to = partials + ((int64_t)blockIdx.z * rows + row) * columns;
        store_columns(to, v, d_column, columns);
      }
    }
    __syncwarp();
  }
}

// Sums the splits in their order: a thread for each eight columns of a row.
template <class Finish>
DEVICE void reduce_splits(const float* partials, int splits, int rows, int columns, int filled_rows,
                          const Finish& finish) {
  const int per_row = ceil_div(columns, CHUNK);
  const int64_t item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= (int64_t)rows * per_row) return;
  const int row = (int)(item / per_row), column = (int)(item % per_row) * CHUNK;
  float v[CHUNK] = {};
  const bool filled = row < filled_rows;
  for (int split = 0; filled && split < splits; split++) {
    float part[CHUNK];
    load_columns(part, partials + ((int64_t)split * rows + row) * columns, column, columns);
#pragma unroll
    for (int e = 0; e < CHUNK; e++) v[e] += part[e];
  }
  finish(v, row, column, filled);
}
