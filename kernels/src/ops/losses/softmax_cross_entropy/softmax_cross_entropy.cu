// Softmax cross-entropy, averaged over each group of images, and its gradient; torch's
// cross_entropy over the rows whose label is not -1.
//
// Launch: a warp per row, at most 128 blocks of 32 warps; softmax_cross_entropy_total adds the
// partial sums.
// Cost: 2 or 4 bytes per logit, 1 MB at 6,144 rows of 81 classes (12 images); latency-bound; later
// passes over a row hit L1.
// Numerics: maximum subtracted; fp32; sums in a fixed order; gradients rounded once.
// Edge cases: without counted rows the loss is 0; an ignored row may have any values.
#include "platform.cuh"
#include "losses.cuh"

REALS(fp16, fp32)

struct ClassLogits {
  const real* logits;
  int classes;
};

KERNEL(1024)
softmax_cross_entropy_f16(const ClassLogits of, LossRows in, float* RESTRICT partials) {
  const real* logits = of.logits;
  const int classes = of.classes;
  SHARED(int, counts, WINDOW);
  SHARED(float, scratch, 32);
  const LossGroups g = loss_groups(in);
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  float sum = 0.0f;  // over the warp's rows, in lane 0
  for (int first = 0; first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = blockIdx.x * warps + threadIdx.x / 32; row < g.rows; row += gridDim.x * warps) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight <= 0.0f) continue;
      const real* x = logits + (uint64_t)row * classes;
      const Exponentials e = exponentials(x, classes, lane);
      const int label = in.labels[row];
      // An invalid label gives NaN.
      const float truth = label < classes ? to_float(x[label]) : NAN;
      if (lane == 0) sum += weight * (logf(e.sum) + e.greatest - truth);
    }
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

KERNEL(128)
softmax_cross_entropy_total(const float* RESTRICT partials, int count, float* RESTRICT loss) {
  write_total(partials, count, loss);
}

KERNEL(1024)
softmax_cross_entropy_grad_f16(const ClassLogits of, LossRows in, LossGradient grad_output,
                               real* RESTRICT grad_logits) {
  const real* logits = of.logits;
  const int classes = of.classes;
  SHARED(int, counts, WINDOW);
  const LossGroups g = loss_groups(in);
  const float incoming = grad_output.load();
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int first = 0; first == 0 || first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = blockIdx.x * warps + threadIdx.x / 32; row < in.rows; row += gridDim.x * warps) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight < 0.0f) continue;
      const real* x = logits + (uint64_t)row * classes;
      real* grad = grad_logits + (uint64_t)row * classes;
      if (weight == 0.0f) {
        for (int c = lane; c < classes; c += 32) grad[c] = to_real(0.0f);
        continue;
      }
      const Exponentials e = exponentials(x, classes, lane);
      const int label = in.labels[row];
      for (int c = lane; c < classes; c += 32) {
        const float probability = expf(to_float(x[c]) - e.greatest) / e.sum;
        const float slope = probability - (c == label ? 1.0f : 0.0f);
        grad[c] = to_real(incoming * weight * slope);
      }
    }
  }
}
