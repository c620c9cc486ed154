// Softmax cross-entropy with class weights and label smoothing, as a weighted mean over each group
// of images, and its gradient; torch's cross_entropy over the rows whose label is not -1.
//
//   logits         [M, classes]  real        in       a column per class
//   labels         [M]           int         in       class, or -1 (ignored)
//   image_idx      [M]           int         in       image of the row
//   num_images     [1]           int         in       images in use
//   class_weights  [classes]     float       scratch  weight of each class
//   scales         [M]           float       scratch  1 / (weights of its group * groups), or 0
//   partials       [blocks]      float       scratch  sum of each block
//   loss           [1]           float       out      forward
//   grad_output    [1]           real/float  in       backward: gradient of the loss
//   grad_logits    [M, classes]  real        out      backward
//
// Launch: weights as arguments, 512 per launch; scales with one block per group; then one warp per
// row, at most 128 blocks of 32 warps; weighted_cross_entropy_total adds the partial sums.
// Cost: same as softmax_cross_entropy, plus 16 bytes per row and group; latency-bound.
// Numerics: maximum subtracted; fp32; sums in a fixed order; gradients rounded once.
// Edge cases: without rows of a weight above 0 the loss is 0; an ignored row may have any values.
#include "platform.cuh"
#include "losses.cuh"

REALS(fp16, fp32)

// Class weights that fit in one argument.
constexpr int CHUNK = 512;

struct ClassWeights {
  float values[CHUNK];
};
static_assert(sizeof(ClassWeights) == 2048, "the launches build it");

KERNEL(CHUNK)
weighted_cross_entropy_classes(ClassWeights chunk, int count, float* RESTRICT class_weights) {
  const int i = threadIdx.x;
  if (i < count) class_weights[i] = chunk.values[i];
}

KERNEL(1024)
weighted_cross_entropy_scales(LossRows in, const float* RESTRICT class_weights, int classes,
                              float* RESTRICT scales) {
  SHARED(float, scratch, 32);
  const LossGroups g = loss_groups(in);
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < in.rows;
       row += gridDim.x * blockDim.x)
    if (group_of(in, g, row) < 0) scales[row] = 0.0f;
  for (int group = blockIdx.x; group < g.groups; group += gridDim.x) {
    float sum = 0.0f;
    for (int row = threadIdx.x; row < in.rows; row += blockDim.x) {
      if (group_of(in, g, row) != group) continue;
      const int label = in.labels[row];
      // An invalid label gives NaN.
      sum += label < classes ? class_weights[label] : NAN;
    }
    sum = block_sum(sum, scratch);
    const float scale = sum == 0.0f ? 0.0f : 1.0f / (sum * (float)g.groups);
    for (int row = threadIdx.x; row < in.rows; row += blockDim.x)
      if (group_of(in, g, row) == group) scales[row] = scale;
  }
}

KERNEL(1024)
weighted_cross_entropy_f16(const real* RESTRICT logits, const int* RESTRICT labels,
                           const float* RESTRICT class_weights, const float* RESTRICT scales,
                           int rows, int classes, float smoothing, float* RESTRICT partials) {
  SHARED(float, scratch, 32);
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const float share = smoothing / (float)classes;
  float sum = 0.0f;  // over the warp's rows, in lane 0
  for (int row = blockIdx.x * warps + threadIdx.x / 32; row < rows; row += gridDim.x * warps) {
    const float scale = scales[row];
    if (scale == 0.0f) continue;
    const real* x = logits + (uint64_t)row * classes;
    const Exponentials e = exponentials(x, classes, lane);
    const float log_sum = logf(e.sum) + e.greatest;
    const int label = labels[row];
    float all = 0.0f;
    if (share > 0.0f) {
      for (int c = lane; c < classes; c += 32)
        all += class_weights[c] * (log_sum - to_float(x[c]));
      all = warp_sum(all);
    }
    // An invalid label has a NaN scale.
    const int own = min(label, classes - 1);
    const float cost = class_weights[own] * (log_sum - to_float(x[own]));
    if (lane == 0) sum += scale * ((1.0f - smoothing) * cost + share * all);
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

KERNEL(128)
weighted_cross_entropy_total(const float* RESTRICT partials, int count, float* RESTRICT loss) {
  write_total(partials, count, loss);
}

KERNEL(1024)
weighted_cross_entropy_grad_f16(const real* RESTRICT logits, const int* RESTRICT labels,
                                const float* RESTRICT class_weights, const float* RESTRICT scales,
                                int rows, int classes, float smoothing, LossGradient grad_output,
                                real* RESTRICT grad_logits) {
  const float incoming = grad_output.load();
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const float share = smoothing / (float)classes;
  float total = 0.0f;
  for (int c = lane; c < classes; c += 32) total += class_weights[c];
  total = warp_sum(total);
  for (int row = blockIdx.x * warps + threadIdx.x / 32; row < rows; row += gridDim.x * warps) {
    const float scale = scales[row];
    real* grad = grad_logits + (uint64_t)row * classes;
    if (scale == 0.0f) {
      for (int c = lane; c < classes; c += 32) grad[c] = to_real(0.0f);
      continue;
    }
    const real* x = logits + (uint64_t)row * classes;
    const Exponentials e = exponentials(x, classes, lane);
    const int label = labels[row];
    const float own = (1.0f - smoothing) * class_weights[min(label, classes - 1)];
    const float pull = own + share * total;
    for (int c = lane; c < classes; c += 32) {
      const float probability = expf(to_float(x[c]) - e.greatest) / e.sum;
      const float truth = (c == label ? own : 0.0f) + share * class_weights[c];
      grad[c] = to_real(incoming * scale * (pull * probability - truth));
    }
  }
}
