// The epilogue with its operands hoisted: scale and bias are loaded once for the thread's eight
// columns, and the residual of a slice of 16 rows while the slice before it is stored. Values are
// those of ActivationRows, in its order.
#pragma once
#include "switches.cuh"

namespace probe {

struct Finish {
  half* y;
  const float *scale, *bias;
  const half* residual;
  int columns, relu, rows, filled_rows;
};

template <class T>
DEVICE void store_prefetched(const Sums<T>& sums, half* stages, int first_row, int first_column,
                             const Finish& to) {
  constexpr int PITCH = T::WARP_COLUMNS + 8, LANES = T::WARP_COLUMNS / CHUNK;
  constexpr int LINES = 32 / LANES, TURNS = 16 / LINES;  // rows of a turn, turns of a slice
  const int lane = threadIdx.x % 32, line = lane / LANES;
  float* slice = (float*)stages + threadIdx.x / 32 * (16 * PITCH);
  const int column = lane % LANES * CHUNK, d_column = first_column + warp_column<T>() + column;
  // Columns come in whole chunks: a multiple of 8, as in all aligned kernels.
  const bool there = d_column < to.columns;
  const int top = first_row + warp_row<T>() + line;

  float scale[CHUNK], bias[CHUNK];
#pragma unroll
  for (int e = 0; e < CHUNK; e++) scale[e] = 1.0f, bias[e] = 0.0f;
  if (to.scale && there) load_columns(scale, to.scale, d_column, CHUNK);
  if (to.bias && there) load_columns(bias, to.bias, d_column, CHUNK);

  uint4 residual[2][TURNS];
  auto fetch = [&](int i) {
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
      const int row = top + i * 16 + turn * LINES;
      residual[i % 2][turn] = make_uint4(0, 0, 0, 0);
      if (to.residual && there && row < to.filled_rows)
        residual[i % 2][turn] = *(const uint4*)(to.residual + (int64_t)row * to.columns + d_column);
    }
  };
  fetch(0);
#pragma unroll
  for (int i = 0; i < Sums<T>::ROWS; i++) {
    if (i + 1 < Sums<T>::ROWS) fetch(i + 1);
#pragma unroll
    for (int j = 0; j < Sums<T>::COLUMNS; j++) {
      float* at = slice + lane / 4 * PITCH + j * 8 + lane % 4 * 2;
      *(float2*)at = make_float2(sums.of[i][j][0], sums.of[i][j][1]);
      *(float2*)(at + 8 * PITCH) = make_float2(sums.of[i][j][2], sums.of[i][j][3]);
    }
    __syncwarp();
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
      const int row = top + i * 16 + turn * LINES;
      float v[CHUNK];
      const float* at = slice + (turn * LINES + line) * PITCH + column;
      *(float4*)&v[0] = *(const float4*)at;
      *(float4*)&v[4] = *(const float4*)(at + 4);
      const half* other = (const half*)&residual[i % 2][turn];
#pragma unroll
      for (int e = 0; e < CHUNK; e++) {
        if (to.scale) v[e] *= scale[e];
        if (to.bias) v[e] += bias[e];
        if (to.residual) v[e] += __half2float(other[e]);
        // Not max(), so that a NaN stays one.
        if (to.relu && v[e] < 0.0f) v[e] = 0.0f;
        if (row >= to.filled_rows) v[e] = 0.0f;
      }
      if (there && row < to.rows)
        store_columns(to.y + (int64_t)row * to.columns + d_column, v, 0, CHUNK);
    }
    __syncwarp();
  }
}

}  // namespace probe
