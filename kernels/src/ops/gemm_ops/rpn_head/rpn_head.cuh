// The kernels of rpn_head.cu and rpn_head_warpgroup.cu, for any tile.
#pragma once
#include "gemm/gemm.cuh"

constexpr int MAX_LEVELS = 8;
constexpr int OUTPUTS = 16;  // 5 * A, rounded up to 16x8 tiles

struct Levels {
  const half* maps[MAX_LEVELS];
  half *logits[MAX_LEVELS], *deltas[MAX_LEVELS];
  int heights[MAX_LEVELS], widths[MAX_LEVELS];
  int first_tiles[MAX_LEVELS];
  int levels, images, channels, filters, anchors;
};

// Both 1x1 convolutions as one: outputs are the logits, then the deltas.
struct Predictors {
  const half *w_logits, *w_deltas;
  const float *b_logits, *b_deltas;
  int anchors, channels;

  // Weights of an output for channels k and k + 1.
  DEVICE unsigned pair(int output, int k) const {
    if (k >= channels || output >= 5 * anchors) return 0;
    const half* row = output < anchors ? w_logits + (int64_t)output * channels
                                       : w_deltas + (int64_t)(output - anchors) * channels;
    return *(const unsigned*)(row + k);
  }
};

DEVICE unsigned relu_pair(float a, float b) {
  // Not max(), so that NaN is preserved.
  const unsigned low = __half_as_ushort(__float2half_rn(a < 0.0f ? 0.0f : a));
  return low | (unsigned)__half_as_ushort(__float2half_rn(b < 0.0f ? 0.0f : b)) << 16;
}

// Adds the contribution of the tile's columns from `first_column` on to `outputs` [T::ROWS,
// OUTPUTS]. Called by all threads of the block; `outputs` is complete on return.
template <class T>
DEVICE void predict(const Sums<T>& sums, const float* bias, const Predictors& predictors,
                    int first_column, float* outputs) {
  const int lane = threadIdx.x % 32, row = T::warp_row() + lane / 4, pair = lane % 4 * 2;
  float own[Sums<T>::ROWS][2][4] = {};
#pragma unroll
  for (int j = 0; j < Sums<T>::COLUMNS; j += 2) {
    const int column = first_column + T::warp_column() + j * 8 + pair;
    unsigned b[2][2];
    float added[2][2] = {};
#pragma unroll
    for (int half_k = 0; half_k < 2; half_k++) {
      const int k = column + half_k * 8;
#pragma unroll
      for (int n = 0; n < 2; n++) b[n][half_k] = predictors.pair(n * 8 + lane / 4, k);
      if (k < predictors.channels) added[half_k][0] = bias[k], added[half_k][1] = bias[k + 1];
    }
#pragma unroll
    for (int i = 0; i < Sums<T>::ROWS; i++) {
      unsigned a[4];
#pragma unroll
      for (int half_k = 0; half_k < 2; half_k++) {
        const float(&d)[4] = sums.of[i][j + half_k];
        a[half_k * 2] = relu_pair(d[0] + added[half_k][0], d[1] + added[half_k][1]);
        a[half_k * 2 + 1] = relu_pair(d[2] + added[half_k][0], d[3] + added[half_k][1]);
      }
#pragma unroll
      for (int n = 0; n < 2; n++) multiply_16x8x16(own[i][n], a, b[n][0], b[n][1]);
    }
  }
  // The two warps with the same rows take turns, in order.
  for (int turn = 0; turn < 2; turn++) {
    if ((T::warp_column() != 0) == (turn != 0)) {
#pragma unroll
      for (int i = 0; i < Sums<T>::ROWS; i++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const int line = row + i * T::FRAGMENTS_APART + e / 2 * 8;
            float& to = outputs[line * OUTPUTS + n * 8 + pair + e % 2];
            to = first_column == 0 && turn == 0 ? own[i][n][e] : to + own[i][n][e];
          }
    }
    __syncthreads();
  }
}

// Writes `width` outputs of each row from column `first` on, to contiguous rows.
template <class T>
DEVICE void write_outputs(half* to, const float* outputs, const float* bias, int first, int width,
                          int rows) {
  for (int e = threadIdx.x; e < rows * width; e += T::THREADS) {
    const int row = e / width, column = e - row * width;
    to[e] = __float2half_rn(outputs[row * OUTPUTS + first + column] + bias[column]);
  }
}

template <class T>
DEVICE void rpn_head(const Levels& levels, const half* w, const float* bias,
                     const Predictors& predictors) {
  DYNAMIC_SHARED(memory);
  half* stages = (half*)memory;
  float* outputs = (float*)(stages + T::STAGES * T::STAGE);
  int level = 0;
  for (int i = 1; i < levels.levels; i++)
    if ((int)blockIdx.x >= levels.first_tiles[i]) level = i;
  const int height = levels.heights[level], width = levels.widths[level];
  const int first_row = ((int)blockIdx.x - levels.first_tiles[level]) * T::ROWS;
  const Conv conv{levels.images, height, width, levels.channels, levels.filters, 3, 3, 1, 1,
                  height,        width};
  const Forward pass(levels.maps[level], w, nullptr, conv);
  const Share all{0, pass.taps().k_blocks(conv.channels, T::DEPTH, true)};
  for (int column = 0; column < conv.filters; column += T::COLUMNS) {
    Sums<T> sums;
    sums.clear();
    multiply(sums, pass, all, first_row, column, stages);
    predict(sums, bias, predictors, column, outputs);
  }
  const int anchors = levels.anchors, filled = min(T::ROWS, pass.rows - first_row);
  write_outputs<T>(levels.logits[level] + (int64_t)first_row * anchors, outputs,
                   predictors.b_logits, 0, anchors, filled);
  write_outputs<T>(levels.deltas[level] + (int64_t)first_row * 4 * anchors, outputs,
                   predictors.b_deltas, anchors, 4 * anchors, filled);
}

#define RPN_HEAD(name, tile, blocks)                                       \
  KERNEL_BLOCKS(tile::THREADS, blocks)                                     \
  name(Levels levels, const half* RESTRICT w, const float* RESTRICT bias,  \
       const half* RESTRICT w_logits, const float* RESTRICT b_logits,      \
       const half* RESTRICT w_deltas, const float* RESTRICT b_deltas) {    \
    const Predictors predictors{w_logits, w_deltas,       b_logits,        \
                                b_deltas, levels.anchors, levels.filters}; \
    rpn_head<tile>(levels, w, bias, predictors);                           \
  }
