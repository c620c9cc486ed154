// Binary cross-entropy of mask logits, averaged over each group of images, and its gradient.
//
// Launch: a block per row, at most 512 blocks of 256 threads; mask_bce_loss_total adds the partial
// sums.
// Cost: 6 bytes per pixel of a positive row, 2 more backward; memory-bound.
// Numerics: fp32, sums in a fixed order, gradients rounded once.
// Edge cases: without positive rows the loss is 0; other rows may have any values.
//
// Matches the mask losses of torchvision and maskrcnn-benchmark.
#include "platform.cuh"
#include "losses.cuh"

REALS(fp16, fp32)

struct MaskLogits {
  const real* logits;
  const float* targets;
  int pixels;
  DEVICE Element element(uint64_t at) const {
    return bce_with_logits(to_float(logits[at]), targets[at]);
  }
};

KERNEL(256)
mask_bce_loss_f16(const MaskLogits of, LossRows in, float* RESTRICT partials) {
  const int pixels = of.pixels;
  SHARED(int, counts, WINDOW);
  SHARED(float, scratch, 32);
  const LossGroups g = loss_groups(in);
  float sum = 0.0f;
  for (int first = 0; first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = blockIdx.x; row < g.rows; row += gridDim.x) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight <= 0.0f) continue;
      float loss = 0.0f;
      for (int pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x) {
        const uint64_t at = (uint64_t)row * pixels + pixel;
        loss += of.element(at).loss;
      }
      sum += weight / (float)pixels * loss;
    }
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

KERNEL(512)
mask_bce_loss_total(const float* RESTRICT partials, int count, float* RESTRICT loss) {
  write_total(partials, count, loss);
}

KERNEL(256)
mask_bce_loss_grad_f16(const MaskLogits of, LossRows in, LossGradient grad_output,
                       real* RESTRICT grad_mask_logits) {
  const int pixels = of.pixels;
  SHARED(int, counts, WINDOW);
  const LossGroups g = loss_groups(in);
  const float incoming = grad_output.load();
  for (int first = 0; first == 0 || first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = blockIdx.x; row < in.rows; row += gridDim.x) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight < 0.0f) continue;
      const float scale = incoming * (weight / (float)pixels);
      for (int pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x) {
        const uint64_t at = (uint64_t)row * pixels + pixel;
        float slope = 0.0f;
        if (weight > 0.0f)
          slope = scale * of.element(at).slope;
        grad_mask_logits[at] = to_real(slope);
      }
    }
  }
}
