// Small kernels around the convolution GEMMs: sums over splits, and scaled weights.
//
// conv2d_reduce_f16, for conv2d, and conv2d_reduce_nearest_f16, for conv2d_nearest:
//   partials  [splits, rows, columns]  float  in   sums of each split
//   scale     [columns]                float  in   or null
//   bias      [columns]                float  in   or null
//   residual  [rows, columns]          half   in   or null
//   count     [1]                      int    in   images in use, or null: all
//   y         [rows, columns]          half   out  not written from row count * per_image on
//   signs     [rows*columns/8]         byte   out  of y, as in src/signs.rs, or null
//
// conv2d_reduce_gradient_f16, for conv2d_grad_input and conv2d_masked:
//   partials  [splits, rows, columns]  float  in   sums of each split
//   bias      [columns]                float  in   or null
//   other     [rows, columns]          half   in   gradient that is added, or null
//   mask      [rows, columns]          half   in   dx is 0 where it is not positive, or null
//   signs     [rows*columns/8]         byte   in   signs of a mask, instead of it, or null
//   count     [1]                      int    in   images in use, or null: all
//   dx        [rows, columns]          half   out  not written from row count * per_image on
//
// conv2d_reduce_f32, for conv2d_grad_weight:
//   partials  [splits, rows, columns]  float  in   sums of each split
//   scale     [rows]                   float  in   or null
//   dw        [rows, columns]          float  out  gradient of the filters
//
// conv2d_scale_weights_f16:
//   w       [rows, columns]  real   in   filters
//   scale   [rows]           float  in   scale of each filter
//   scaled  [rows, columns]  real   out  w * scale
//
// conv2d_expand_groups_f16, and conv2d_collect_groups_f32, the reverse for gradients:
//   w       [rows, taps, channels]  real   in   filters (float, out)
//   scale   [rows]                  float  in   scale of each filter, or null
//   wide    [rows, taps, wide]      real   out  filters with zeros for other groups (float, in)
//
// Launch: a thread per 8 columns of a row; one per 8 values of wide, or one per value of a
// gradient; blocks of 256.
// Cost: 4 * splits + 2 (4) bytes per element; memory-bound, mostly in L2.
// Numerics: sums in the order of the splits, rounded once; deterministic.
// Edge cases: partials of images past the count are not read.
#include "platform.cuh"
#include "gemm/conv.cuh"
#include "gemm/gradient.cuh"
#include "gemm/nearest.cuh"

REALS(fp16, fp32, tf32)

#ifndef REAL_IS_FLOAT
KERNEL(256)
conv2d_reduce_f16(const float* RESTRICT partials, int splits, int images, int per_image,
                  int columns, const float* RESTRICT scale, const float* RESTRICT bias,
                  const half* RESTRICT residual, const int* RESTRICT count, half* RESTRICT y,
                  int relu, unsigned char* RESTRICT signs) {
  const ActivationRows epilogue{y, scale, bias, residual, columns, relu, signs};
  reduce_splits(partials, splits, images * per_image, columns,
                used_images(count, images) * per_image, epilogue);
}

KERNEL(256)
conv2d_reduce_nearest_f16(const float* RESTRICT partials, int splits, int images, int per_image,
                          int columns, const float* RESTRICT scale, const float* RESTRICT bias,
                          const half* RESTRICT residual, const int* RESTRICT count,
                          half* RESTRICT y, int relu, Nearest nearest) {
  const ActivationRows all{y, scale, bias, residual, columns, relu};
  reduce_splits(partials, splits, images * per_image, columns,
                used_images(count, images) * per_image, NearestRows{all, nearest});
}

KERNEL(256)
conv2d_reduce_gradient_f16(const float* RESTRICT partials, int splits, int images, int per_image,
                           int columns, const float* RESTRICT bias, const half* RESTRICT other,
                           const half* RESTRICT mask, const unsigned char* RESTRICT signs,
                           const int* RESTRICT count, half* RESTRICT dx, int relu) {
  const GradientRows epilogue{dx, bias, other, mask, signs, columns, relu};
  reduce_splits(partials, splits, images * per_image, columns,
                used_images(count, images) * per_image, epilogue);
}

KERNEL(256)
conv2d_reduce_f32(const float* RESTRICT partials, int splits, const float* RESTRICT scale,
                  float* RESTRICT dw, int rows, int columns) {
  reduce_splits(partials, splits, rows, columns, rows, WeightRows{dw, scale, columns});
}
#endif

KERNEL(256)
conv2d_scale_weights_f16(const real* RESTRICT w, const float* RESTRICT scale, real* RESTRICT scaled,
                         int rows, int columns) {
  const int per_row = ceil_div(columns, CHUNK);
  const int64_t item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= (int64_t)rows * per_row) return;
  const int row = (int)(item / per_row), column = (int)(item % per_row) * CHUNK;
  const int64_t first = (int64_t)row * columns;
  const float factor = scale[row];
  const Reals own = load_reals(w + first, column, columns);
  float v[CHUNK];
  for (int e = 0; e < CHUNK; e++) v[e] = own.value(e) * factor;
  store_columns(scaled + first, v, column, columns);
}

// Merged groups of a convolution: `filters` and `channels` per group, and `wide` channels in total.
struct GroupsTogether {
  int rows, taps, filters, channels, wide;
  // The row's first channel within the merged groups.
  DEVICE int place(int row) const { return row / filters % (wide / channels) * channels; }
};

KERNEL(256)
conv2d_expand_groups_f16(const real* RESTRICT w, const float* RESTRICT scale, real* RESTRICT wide,
                         GroupsTogether groups) {
  const int per_tap = ceil_div(groups.wide, CHUNK);
  const int64_t item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= (int64_t)groups.rows * groups.taps * per_tap) return;
  const int64_t line = item / per_tap;
  const int row = (int)(line / groups.taps), column = (int)(item % per_tap) * CHUNK;
  const real* own = w + line * groups.channels;
  const float factor = scale ? scale[row] : 1.0f;
  const int place = groups.place(row);
  float v[CHUNK];
  for (int e = 0; e < CHUNK; e++) {
    const int channel = column + e - place;
    v[e] = channel >= 0 && channel < groups.channels ? to_float(own[channel]) * factor : 0.0f;
  }
  store_columns(wide + line * groups.wide, v, column, groups.wide);
}

KERNEL(256)
conv2d_collect_groups_f32(const float* RESTRICT wide, float* RESTRICT w, GroupsTogether groups) {
  const int64_t item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= (int64_t)groups.rows * groups.taps * groups.channels) return;
  const int64_t line = item / groups.channels;
  const int channel = (int)(item % groups.channels), row = (int)(line / groups.taps);
  w[item] = wide[line * groups.wide + groups.place(row) + channel];
}
