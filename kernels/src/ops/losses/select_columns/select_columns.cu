// Selects one of several groups of columns in each row, and its gradient.
//
// select_columns:
//   x      [M, columns]  real        in   groups of width columns
//   index  [M]           int         in   group of each row
//   y      [M, width]    real        out  the group's columns
//
// select_columns_backward:
//   grad_output  [M, width]    real  in   gradient of y
//   index        [M]           int   in   as above
//   grad_x       [M, columns]  real  out  0 except in the row's group
//
// Launch: a thread per element of y; backward one per 8 elements of grad_x (a 16-byte store);
// blocks of 256.
// Cost: backward 4 MB of stores at 6,144 x 324; memory-bound.
// Numerics: copies.
// Edge cases: an invalid group index gives zeros.
#include "real.cuh"

REALS(fp16, fp32)

constexpr int VECTOR = 8;  // halves in a 16-byte store, floats in two

// First column of the group with this index; -1 if none.
DEVICE int first_column(int index, int width, int columns, int modulo) {
  if (index < 0) return -1;
  const int groups = columns / width, group = modulo ? index % groups : index;
  return group < groups ? group * width : -1;
}

KERNEL(256)
select_columns_f16(const real* RESTRICT x, const int* RESTRICT index, real* RESTRICT y, int width,
                   int columns, int modulo, uint64_t len) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= len) return;
  const uint64_t row = i / width;
  const int first = first_column(index[row], width, columns, modulo);
  y[i] = first < 0 ? to_real(0.0f) : x[row * columns + first + i % width];
}

KERNEL(256)
select_columns_backward_f16(const real* RESTRICT grad_output, const int* RESTRICT index,
                            real* RESTRICT grad_x, int width, int columns, int modulo,
                            uint64_t len) {
  const uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (first >= len) return;
  uint64_t row = first / columns;
  int column = (int)(first % columns);
  int selected = first_column(index[row], width, columns, modulo);
  Real8 words;
  real* values = (real*)&words;
#pragma unroll  // the words stay in registers
  for (int i = 0; i < VECTOR; i++) {
    const bool own = selected >= 0 && column >= selected && column < selected + width;
    values[i] = own ? grad_output[row * width + column - selected] : to_real(0.0f);
    column++;
    if (column == columns && first + i + 1 < len) {
      column = 0;
      row++;
      selected = first_column(index[row], width, columns, modulo);
    }
  }
  if (first + VECTOR <= len) {
    *(Real8*)(grad_x + first) = words;
  } else {
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
      if (first + i < len) grad_x[first + i] = values[i];
  }
}
