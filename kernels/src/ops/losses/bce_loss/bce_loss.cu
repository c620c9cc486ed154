// Binary cross-entropy of logits, mean by group, and its gradient; torch's
// binary_cross_entropy_with_logits over the rows whose label is not -1.
//
//   logits       [M]  real        in   one per row
//   labels       [M]  int         in   1, 0, or -1 (ignored)
//   image_idx    [M]  int         in   image of the row
//   num_images   [1]  int         in   images in use
//   loss         [1]  float       out  forward
//   grad_output  [1]  real/float  in   backward: gradient of the loss
//   grad_logits  [M]  real        out  backward
//
// Launch: the loss is one block of 1,024 threads, the gradient a thread per row in at most 128 such
// blocks.
// Cost: 10 or 12 bytes per row; at 3,072 rows (12 images) latency-bound, so one block beats a
// second launch.
// Numerics: fp32, sums in a fixed order, gradients rounded once.
// Edges: no rows or none that counts give 0; an ignored row may hold anything.
#include "platform.cuh"
#include "losses.cuh"

REALS(fp16, fp32)

KERNEL(1024) bce_loss_f16(const real* RESTRICT logits, LossRows in, float* RESTRICT loss) {
  SHARED(int, counts, WINDOW);
  SHARED(float, scratch, 32);
  const LossGroups g = loss_groups(in);
  float sum = 0.0f;
  for (int first = 0; first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = threadIdx.x; row < g.rows; row += blockDim.x) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight <= 0.0f) continue;
      const float target = in.labels[row] > 0 ? 1.0f : 0.0f;
      sum += weight * bce_with_logits(to_float(logits[row]), target).loss;
    }
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) *loss = sum;
}
EXPORT(bce_loss_f16)

KERNEL(1024)
bce_loss_grad_f16(const real* RESTRICT logits, LossRows in, LossGradient grad_output,
                  real* RESTRICT grad_logits) {
  SHARED(int, counts, WINDOW);
  const LossGroups g = loss_groups(in);
  const float incoming = grad_output.load();
  for (int first = 0; first == 0 || first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < in.rows;
         row += gridDim.x * blockDim.x) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight < 0.0f) continue;
      float grad = 0.0f;
      if (weight > 0.0f) {
        const float target = in.labels[row] > 0 ? 1.0f : 0.0f;
        grad = incoming * weight * bce_with_logits(to_float(logits[row]), target).slope;
      }
      grad_logits[row] = to_real(grad);
    }
  }
}
EXPORT(bce_loss_grad_f16)
