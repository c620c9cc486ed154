// Epilogue of GEMMs that compute a gradient: adds another gradient, then masks it.
#pragma once
#include "epilogue.cuh"

// dx = relu(acc + bias + other) in reals where mask > 0, else 0, each part if present. Where the
// mask is NaN, dx is 0. Absent parts are neutral, as in ActivationRows.
struct GradientRows {
  real* dx;
  const float* bias;           // per column
  const real *other, *mask;    // [rows, columns], like dx
  const unsigned char* signs;  // sign bits instead of a mask
  int columns, relu;

  struct Held {
    float bias[CHUNK];
    float least;  // lower bound: smaller values become 0
  };
  struct Row {
    Reals other, mask;  // sign bits are in the mask's first word
  };

  DEVICE Held hold(int column) const {
    Held held;
#pragma unroll
    for (int e = 0; e < CHUNK; e++) held.bias[e] = -0.0f;
    held.least = relu ? 0.0f : -INFINITY;
    if (bias) load_columns(held.bias, bias, column, columns);
    return held;
  }
  DEVICE Row fetch(int row, int column) const {
    const int64_t first = (int64_t)row * columns;
    Row at{all_reals(real_of(-0.0f, 0x8000)), all_reals(real_of(1.0f, 0x3c00))};
    if (other) at.other = load_reals(other + first, column, columns);
    if (mask) at.mask = load_reals(mask + first, column, columns);
    if (signs) first_word(at.mask.words) = signs[place_of_signs(row, column, columns)];
    return at;
  }
  DEVICE void prefetch(int row, int column) const {
    if (other) ::prefetch(other + (int64_t)row * columns + column);
    if (mask) ::prefetch(mask + (int64_t)row * columns + column);
  }
  DEVICE void operator()(float (&v)[CHUNK], const Held& held, const Row& at, int row,
                         int column) const {
    unsigned passes = first_word(at.mask.words);
    if (!signs) {
      passes = 0;
#pragma unroll
      for (int e = 0; e < CHUNK; e++) passes |= (at.mask.value(e) > 0.0f ? 1u : 0u) << e;
    }
#pragma unroll
    for (int e = 0; e < CHUNK; e++) {
      v[e] = v[e] + held.bias[e] + at.other.value(e);
      // Not max(), so that NaN is preserved.
      if (v[e] < held.least || !(passes >> e & 1)) v[e] = 0.0f;
    }
    store_columns(dx + (int64_t)row * columns, v, column, columns);
  }
};
