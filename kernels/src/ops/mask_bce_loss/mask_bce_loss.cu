// Binary cross-entropy of mask logits, mean by group, and its gradient; of each positive row only
// the channel of its class counts.
//
//   mask_logits       [M, pixels, classes]  half        in       a channel per class
//   targets           [M, pixels]           float       in       mask of the row
//   labels            [M]                   int         in       class; above 0: positive
//   image_idx         [M]                   int         in       image of the row
//   count             [1]                   int         in       rows in use
//   num_images        [1]                   int         in       images in use
//   partials          [blocks]              float       scratch  sum of each block
//   loss              [1]                   float       out      forward
//   grad_output       [1]                   half/float  in       backward: gradient of the loss
//   grad_mask_logits  [M, pixels, classes]  half        out      backward: 0 in other channels
//
// Launch: a block per row, at most 512 blocks of 256 threads; mask_bce_loss_total adds the partial
// sums.
// Cost: 36 bytes per pixel of a positive row (a sector of 32 for the logit); the gradient 2 bytes
// per logit, 195 MB at 1,536 rows of 28x28x81; memory-bound.
// Numerics: fp32, sums in a fixed order, gradients rounded once.
// Edges: no positive row gives 0; other channels and rows may hold anything.
//
// Matches the mask losses of torchvision and maskrcnn-benchmark.
#include "platform.cuh"
#include "losses.cuh"

constexpr int VECTOR = 8;  // halves in a 16-byte store

KERNEL(256)
mask_bce_loss_f16(const half* RESTRICT mask_logits, const float* RESTRICT targets, LossRows in,
                  int pixels, int classes, float* RESTRICT partials) {
  SHARED(int, counts, WINDOW);
  SHARED(float, scratch, 32);
  const LossGroups g = loss_groups(in);
  float sum = 0.0f;
  for (int first = 0; first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = blockIdx.x; row < g.rows; row += gridDim.x) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight <= 0.0f) continue;
      const int label = in.labels[row];
      float loss = 0.0f;
      for (int pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x) {
        const uint64_t at = (uint64_t)row * pixels + pixel;
        // A label that is no class shows as NaN.
        const float logit = label < classes ? __half2float(mask_logits[at * classes + label]) : NAN;
        loss += bce_with_logits(logit, targets[at]).loss;
      }
      sum += weight / (float)pixels * loss;
    }
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}
EXPORT(mask_bce_loss_f16)

KERNEL(512)
mask_bce_loss_total(const float* RESTRICT partials, int count, float* RESTRICT loss) {
  write_total(partials, count, loss);
}
EXPORT(mask_bce_loss_total)

// Writes zeros to `len` halves, 16 bytes at a time if the first is aligned. For a block.
DEVICE void fill_zero(half* to, uint64_t len) {
  const uint64_t vectors = (uint64_t)to % 16 == 0 ? len / VECTOR : 0;
  for (uint64_t i = threadIdx.x; i < vectors; i += blockDim.x)
    ((uint4*)to)[i] = make_uint4(0, 0, 0, 0);
  const half zero = __float2half_rn(0.0f);
  for (uint64_t i = vectors * VECTOR + threadIdx.x; i < len; i += blockDim.x) to[i] = zero;
}

KERNEL(256)
mask_bce_loss_grad_f16(const half* RESTRICT mask_logits, const float* RESTRICT targets, LossRows in,
                       int pixels, int classes, LossGradient grad_output,
                       half* RESTRICT grad_mask_logits) {
  SHARED(int, counts, WINDOW);
  const LossGroups g = loss_groups(in);
  const float incoming = grad_output.load();
  for (int first = 0; first == 0 || first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = blockIdx.x; row < in.rows; row += gridDim.x) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight < 0.0f) continue;  // for the whole block
      const uint64_t first_pixel = (uint64_t)row * pixels;
      // The class's channel over the zeros: both stay in L2 until the row's lines are whole.
      fill_zero(grad_mask_logits + first_pixel * classes, (uint64_t)pixels * classes);
      __syncthreads();
      const int label = in.labels[row];
      if (weight == 0.0f || label >= classes) continue;
      const float scale = incoming * (weight / (float)pixels);
      for (int pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x) {
        const uint64_t at = first_pixel + pixel, logit = at * classes + label;
        const float slope = bce_with_logits(__half2float(mask_logits[logit]), targets[at]).slope;
        grad_mask_logits[logit] = __float2half_rn(scale * slope);
      }
    }
  }
}
EXPORT(mask_bce_loss_grad_f16)
