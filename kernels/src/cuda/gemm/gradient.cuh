// The epilogue of products that make a gradient: another gradient is added, and the sum is masked.
#pragma once
#include "epilogue.cuh"

// dx = relu(sum + bias + other) in half where mask > 0, else 0, each part if it is there. Rows
// without data get 0. A NaN in the mask passes nothing.
struct GradientRows {
  half* dx;
  const float* bias;         // of a column
  const half *other, *mask;  // [rows, columns] as dx
  int columns, relu;

  DEVICE void operator()(float (&v)[CHUNK], int row, int column, bool filled) const {
    const int64_t first = (int64_t)row * columns;
    float part[CHUNK];
    if (bias && filled) {
      load_columns(part, bias, column, columns);
#pragma unroll
      for (int e = 0; e < CHUNK; e++) v[e] += part[e];
    }
    if (other && filled) {
      load_columns(part, other + first, column, columns);
#pragma unroll
      for (int e = 0; e < CHUNK; e++) v[e] += part[e];
    }
#pragma unroll
    for (int e = 0; e < CHUNK; e++) {
      // Not max(), so that a NaN stays one.
      if (relu && v[e] < 0.0f) v[e] = 0.0f;
      if (!filled) v[e] = 0.0f;
    }
    if (mask && filled) {
      load_columns(part, mask + first, column, columns);
#pragma unroll
      for (int e = 0; e < CHUNK; e++) v[e] = part[e] > 0.0f ? v[e] : 0.0f;
    }
    store_columns(dx + first, v, column, columns);
  }
};
