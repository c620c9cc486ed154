// Mask logits of each row's own class, and the gradients: a 1x1 convolution in which each row keeps
// one output channel.
//
//   x         [M, pixels, C]  real   in       map of a RoI
//   w         [K, C]          real   in       a filter per class
//   b         [K]             float  in       bias
//   labels    [M]             int    in       class of the row; above 0: it has a mask
//   count     [1]             int    in       rows in use
//   logits    [M, pixels]     real   out      forward: 0 in rows without a mask
//   g         [M, pixels]     real   in       backward: gradient of the logits
//   dx        [M, pixels, C]  real   out      backward: 0 without a mask, not written past count
//   partials  [M, sums]       float  scratch  backward: row sums for dw (C), db (1), bias_db (C)
//   dw        [K, C]          float  out      backward: sums over the rows of a class
//   db        [K]             float  out      backward
//   bias_db   [C]             float  out      backward: sums of dx over all rows, or null
//
// Launch: a block of 256 per row, whose warps share its pixels; class_masks_grad_total has a block
// per class and 32 columns, followed by the blocks of bias_db.
// Cost: 2 * M * pixels * C bytes forward and twice that backward (308 and 616 MB at 768 rows of
// 28x28x256); memory-bound.
// Numerics: fp32 within a row, fp64 over the rows of a class, in a fixed order; bias_db sums dx
// before it is rounded.
// Edge cases: with relu dx is 0 where x is not positive; rows without a mask are not read; an
// invalid label gives NaN logits and no gradient.
#include "platform.cuh"
#include "reduce.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

constexpr int WARPS = 8;
constexpr int TOGETHER = 4;  // pixels per warp at a time: the number of loads in flight

// Class of a row, 0 if it has no mask.
DEVICE int class_of(const int* labels, const int* count, int row) {
  return row < *count ? max(labels[row], 0) : 0;
}

template <int W>
DEVICE void class_masks(const real* x, const real* w, const float* b, const int* labels,
                        const int* count, real* logits, int pixels, int channels, int classes) {
  const int row = blockIdx.x, label = class_of(labels, count, row);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  real* to = logits + (uint64_t)row * pixels;
  if (label == 0 || label >= classes) {
    const real value = to_real(label == 0 ? 0.0f : NAN);
    for (int pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x) to[pixel] = value;
    return;
  }
  const real* from = x + (uint64_t)row * pixels * channels;
  const real* filter = w + (uint64_t)label * channels;
  for (int first = warp * TOGETHER; first < pixels; first += WARPS * TOGETHER) {
    float sums[TOGETHER] = {};
    for (int channel = lane * W; channel < channels; channel += 32 * W) {
      float factor[W];
      load(factor, filter + channel);
#pragma unroll
      for (int p = 0; p < TOGETHER; p++) {
        float v[W];
        load(v, from + (uint64_t)min(first + p, pixels - 1) * channels + channel);
        for (int i = 0; i < W; i++) sums[p] = __fmaf_rn(v[i], factor[i], sums[p]);
      }
    }
#pragma unroll
    for (int p = 0; p < TOGETHER; p++) {
      const float sum = warp_sum(sums[p]);
      if (lane == p && first + p < pixels) to[first + p] = to_real(sum + b[label]);
    }
  }
}

#define CLASS_MASKS(name, W)                                                              \
  KERNEL(256)                                                                             \
  name(const real* RESTRICT x, const real* RESTRICT w, const float* RESTRICT b,           \
       const int* RESTRICT labels, const int* RESTRICT count, real* RESTRICT logits, int, \
       int pixels, int channels, int classes) {                                           \
    class_masks<W>(x, w, b, labels, count, logits, pixels, channels, classes);            \
  }
CLASS_MASKS(class_masks_f16x8, WIDE)
CLASS_MASKS(class_masks_f16, 1)

// Gradient of the input of one row, and the row's terms of the gradients of its class.
template <int W>
DEVICE void class_masks_grad(const real* g, const real* x, const real* w, const int* labels,
                             const int* count, real* dx, float* partials, int pixels, int channels,
                             int classes, int relu, int row_sums) {
  SHARED(float, scratch, WARPS * 32 * W);
  SHARED(float, bias_scratch, WARPS * 32 * W);
  const int row = blockIdx.x, label = class_of(labels, count, row);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const real* slopes = g + (uint64_t)row * pixels;
  const uint64_t first = (uint64_t)row * pixels * channels;
  if (row >= *count) return;
  if (label == 0 || label >= classes) {
    float zeros[W];
    clear(zeros);
    for (int i = threadIdx.x; i < pixels * (channels / W); i += blockDim.x)
      store(dx + first + (uint64_t)i * W, zeros);
    return;
  }
  float* own = partials + (uint64_t)row * row_sums;
  const bool with_bias = row_sums > channels + 1;
  for (int tile = 0; tile < channels; tile += 32 * W) {
    const int channel = tile + lane * W;
    float sums[W], bias_sums[W];
    clear(sums);
    clear(bias_sums);
    if (channel < channels) {
      float factor[W];
      load(factor, w + (uint64_t)label * channels + channel);
#pragma unroll 2
      for (int pixel = warp; pixel < pixels; pixel += WARPS) {
        const uint64_t at = first + (uint64_t)pixel * channels + channel;
        const float slope = to_float(slopes[pixel]);
        float v[W], grad[W];
        load(v, x + at);
        for (int i = 0; i < W; i++) {
          // Like relu_mask: no gradient where x is NaN.
          grad[i] = !relu || v[i] > 0.0f ? slope * factor[i] : 0.0f;
          sums[i] = __fmaf_rn(slope, v[i], sums[i]);
          bias_sums[i] += grad[i];
        }
        store(dx + at, grad);
      }
    }
    for (int i = 0; i < W; i++) {
      scratch[(warp * 32 + lane) * W + i] = sums[i];
      bias_scratch[(warp * 32 + lane) * W + i] = bias_sums[i];
    }
    __syncthreads();
    if ((int)threadIdx.x < 32 * W && tile + (int)threadIdx.x < channels) {
      float sum = 0.0f, bias_sum = 0.0f;
      for (int i = 0; i < WARPS; i++) {
        sum += scratch[i * 32 * W + threadIdx.x];
        bias_sum += bias_scratch[i * 32 * W + threadIdx.x];
      }
      own[tile + threadIdx.x] = sum;
      if (with_bias) own[channels + 1 + tile + threadIdx.x] = bias_sum;
    }
    __syncthreads();
  }
  float sum = 0.0f;
  for (int pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x)
    sum += to_float(slopes[pixel]);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) own[channels] = sum;
}

#define CLASS_MASKS_GRAD(name, W)                                                              \
  KERNEL(256)                                                                                  \
  name(const real* RESTRICT g, const real* RESTRICT x, const real* RESTRICT w,                 \
       const int* RESTRICT labels, const int* RESTRICT count, real* RESTRICT dx,               \
       float* RESTRICT partials, int, int pixels, int channels, int classes, int relu,         \
       int row_sums) {                                                                         \
    class_masks_grad<W>(g, x, w, labels, count, dx, partials, pixels, channels, classes, relu, \
                        row_sums);                                                             \
  }
CLASS_MASKS_GRAD(class_masks_grad_f16x8, WIDE)
CLASS_MASKS_GRAD(class_masks_grad_f16, 1)

// Sums over the rows of a class: for each column, warp i adds rows i, i + 8, .. The blocks after
// the last class sum over the rows of all classes.
KERNEL(256)
class_masks_grad_total(const float* RESTRICT partials, const int* RESTRICT labels,
                       const int* RESTRICT count, float* RESTRICT dw, float* RESTRICT db,
                       float* RESTRICT bias_db, int rows, int channels, int classes, int row_sums) {
  SHARED(double, scratch, 256);
  const int label = blockIdx.y, warp = threadIdx.x / 32;
  const bool all = label == classes;
  const int column = blockIdx.x * 32 + threadIdx.x % 32, columns = all ? channels : channels + 1;
  const int used = label == 0 ? 0 : min(max(*count, 0), rows);
  const float* from = partials + (all ? channels + 1 : 0) + column;
  double sum = 0.0;
  if (column < columns) {
#pragma unroll 4
    for (int row = warp; row < used; row += WARPS) {
      const int own = labels[row];
      if (all ? own > 0 && own < classes : own == label) sum += from[(uint64_t)row * row_sums];
    }
  }
  scratch[threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  for (int i = 1; i < WARPS; i++) sum += scratch[i * 32 + threadIdx.x];
  float* to = column == channels ? db + label : dw + (uint64_t)label * channels + column;
  if (all) to = bias_db + column;
  *to = (float)sum;
}
