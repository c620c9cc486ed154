// Copies the rows of a gradient to rows of whole chunks, padded with zeros, for the aligned
// kernels.
//
//   g       [rows, columns]     half  in       gradient of the output, a row per position
//   padded  [rows, 8 * chunks]  half  scratch  the same, and zeros
//
// Launch: a thread per chunk of 8 values.
// Cost: 2 * columns + 16 * chunks bytes per row; memory-bound (6,144 rows of 324: 8 MB).
// Numerics: exact.
// Edge cases: without rows nothing is written.
#include "platform.cuh"
#include "vector.cuh"

KERNEL(256)
conv2d_pad_columns_f16(const half* RESTRICT g, half* RESTRICT padded, int rows, int columns) {
  const int chunks = ceil_div(columns, WIDE);
  const int64_t item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= (int64_t)rows * chunks) return;
  const int64_t row = item / chunks;
  const int column = (int)(item - row * chunks) * WIDE;
  const half* from = g + row * columns;
  float v[WIDE];
  for (int i = 0; i < WIDE; i++)
    v[i] = column + i < columns ? __half2float(from[column + i]) : 0.0f;
  store(padded + item * WIDE, v);
}
