// Losses with a thread per row, and their gradients: the loss struct computes a row's loss.
//
// The struct has COLUMNS (1 or 4); `first`, the input whose gradient is computed; POSITIVE, true if
// only rows with a positive label have a loss; and
//   float loss(const LossRows& in, int row)
//   void slopes(const LossRows& in, int row, float (&slope)[COLUMNS])
// The loss is one block, its gradient a thread per row in at most 128 blocks. Sums in a fixed
// order, gradients rounded once.
#pragma once
#include "losses.cuh"

template <typename Loss>
DEVICE void row_loss(const Loss& of, const LossRows& in, float* loss) {
  SHARED(int, counts, WINDOW);
  SHARED(float, scratch, 32);
  const LossGroups g = loss_groups(in);
  float sum = 0.0f;
  for (int first = 0; first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = threadIdx.x; row < g.rows; row += blockDim.x) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight <= 0.0f || (Loss::POSITIVE && in.labels[row] <= 0)) continue;
      sum += weight * of.loss(in, row);
    }
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) *loss = sum;
}

template <int COLUMNS>
struct alignas(COLUMNS * sizeof(real)) RealRow {
  real of[COLUMNS];
};

template <typename Loss>
DEVICE void row_loss_gradient(const Loss& of, const LossRows& in, const LossGradient& grad_output,
                              real* grad) {
  SHARED(int, counts, WINDOW);
  const LossGroups g = loss_groups(in);
  const float incoming = grad_output.load();
  for (int first = 0; first == 0 || first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < in.rows;
         row += gridDim.x * blockDim.x) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight < 0.0f) continue;
      RealRow<Loss::COLUMNS> packed = {};
      if (weight > 0.0f && !(Loss::POSITIVE && in.labels[row] <= 0)) {
        float slope[Loss::COLUMNS];
        of.slopes(in, row, slope);
        for (int i = 0; i < Loss::COLUMNS; i++) {
          packed.of[i] = to_real(incoming * weight * slope[i]);
        }
      }
      ((RealRow<Loss::COLUMNS>*)grad)[row] = packed;
    }
  }
}

// The kernels of a loss; its gradient kernels have up to `threads` threads per block.
#define ROW_LOSS(name, Loss, threads)                                                        \
  KERNEL(1024) name##_f16(const Loss of, LossRows in, float* RESTRICT loss) {                \
    row_loss(of, in, loss);                                                                  \
  }                                                                                          \
  KERNEL(threads)                                                                            \
  name##_grad_f16(const Loss of, LossRows in, LossGradient grad_output, real* RESTRICT grad) { \
    row_loss_gradient(of, in, grad_output, grad);                                            \
  }
