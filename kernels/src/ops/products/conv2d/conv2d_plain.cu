// All passes of a convolution in fp32 and in tf32, plainly, for correctness: conv2d.cu,
// conv2d_grad_input.cu and conv2d_grad_weight.cu for floats; torch's conv2d and its gradients.
//
// conv2d, conv2d_masked and conv2d_nearest, as in conv2d.cu:
//   x         [N, H, W, C]  real   in   input
//   w         [K, R, S, C]  real   in   filters
//   scale     [K]           float  in   factor of a filter, or null
//   bias      [K]           float  in   or null
//   residual  [N, P, Q, K]  real   in   or null; of a smaller map in conv2d_nearest
//   other     [N, P, Q, K]  real   in   its name in conv2d_masked
//   mask      [N, P, Q, K]  real   in   y is 0 where it is not positive, or null
//   count     [1]           int    in   images in use, or null: all
//   y         [N, P, Q, K]  real   out  0 in images from the count on
//   signs     [N*P*Q*K/8]   byte   out  of y, or null; in conv2d_masked those of a mask, read
//
// conv2d_grad_input:
//   g      [N, P, Q, K]  real   in   gradient of the output
//   w      [K, R, S, C]  real   in   filters
//   bias   [C]           float  in   or null
//   other  [N, H, W, C]  real   in   gradient that is added, or null
//   mask   [N, H, W, C]  real   in   dx is 0 where it is not positive, or null
//   signs  [N*H*W*C/8]   byte   in   of a mask, in its place, or null
//   count  [1]           int    in   images in use, or null: all
//   dx     [N, H, W, C]  real   out  0 in images from the count on
//
// conv2d_grad_weight:
//   x      [N, H, W, C]  real   in   input
//   g      [N, P, Q, K]  real   in   gradient of the output
//   scale  [K]           float  in   factor of a filter, or null
//   count  [1]           int    in   images in use, or null: all
//   dw     [K, R, S, C]  float  out  gradient of the filters
//   db     [K]           float  out  sum of g; _bias_ kernels
//
// conv2d_scale_weights:
//   w       [rows, columns]  real   in   filters
//   scale   [rows]           float  in   factor of a filter
//   scaled  [rows, columns]  real   out  w * scale
//
// Launch: that of the kernel in fp16 that loads value by value; no splits, so partials are null.
// Cost: 2*N*P*Q*K*R*S*C FLOPs; bound by the gathering of values, and no figure is kept of it.
// Numerics: fp32 sums of 32 products in order of k, added in order; deterministic.
// Edges: images from the count on are not read.
#include "platform.cuh"
#include "gemm/nearest.cuh"
#include "gemm/plain.cuh"

REALS(fp32, tf32)

// The epilogue of a row: the work of both ActivationRows and GradientRows, for floats.
struct PlainRows {
  real* y;
  const float *scale, *bias;          // of a column, or null
  const real *other, *mask;           // [rows, columns] as y, or null
  const unsigned char* signs_before;  // of a mask, in its place, or null
  unsigned char* signs;               // of y, or null
  int columns, relu;

  // `other_row` is the row of `other`.
  DEVICE void store(const float* sums, int row, int column, bool filled, int other_row) const {
    const int64_t first = (int64_t)row * columns;
    unsigned passes = 0xff, bits = 0;
    if (signs_before && filled) passes = signs_before[place_of_signs(row, column, columns)];
    for (int e = 0; e < CHUNK && column + e < columns; e++) {
      float v = sums[e] * (scale ? scale[column + e] : 1.0f);
      if (bias) v += bias[column + e];
      if (other && filled) v += other[(int64_t)other_row * columns + column + e];
      const bool masked = mask && filled && !(mask[first + column + e] > 0.0f);
      // Not max(), so that a NaN stays one.
      if ((relu && v < 0.0f) || masked || !filled || !(passes >> e & 1)) v = 0.0f;
      y[first + column + e] = v;
      bits |= (v > 0.0f ? 1u : 0u) << e;
    }
    if (signs) signs[place_of_signs(row, column, columns)] = (unsigned char)bits;
  }
};

// `other_of(row)` gives the row of the finish's `other`.
template <class OtherOf>
DEVICE void conv2d_plain(const real* x, const real* w, const PlainRows& finish, const int* count,
                         const Conv& conv, const OtherOf& other_of) {
  SHARED(float, memory, PLAIN_FLOATS);
  const int column_tiles = ceil_div(conv.filters, SIDE);
  const int first_row = blockIdx.x / column_tiles * SIDE;
  const int first_column = blockIdx.x % column_tiles * SIDE;
  const int per_image = conv.out_height * conv.out_width, rows = conv.images * per_image;
  const int filled_rows = filled_images(count, conv.images) * per_image, len = conv.filter_len();
  auto left = [&](int line, int k) {
    const int row = first_row + line, in_image = row % per_image, tap = k / conv.channels;
    if (row >= filled_rows) return 0.0f;
    const int h = in_image / conv.out_width * conv.stride - conv.pad + tap / conv.kernel_w;
    const int c = in_image % conv.out_width * conv.stride - conv.pad + tap % conv.kernel_w;
    const bool inside = (unsigned)h < (unsigned)conv.height && (unsigned)c < (unsigned)conv.width;
    const int64_t pixel = ((int64_t)(row / per_image) * conv.height + h) * conv.width + c;
    return inside ? x[pixel * conv.channels + k % conv.channels] : 0.0f;
  };
  auto right = [&](int line, int k) {
    const int filter = first_column + line;
    return filter < conv.filters ? w[(int64_t)filter * len + k] : 0.0f;
  };
  multiply_plain(memory, first_row < filled_rows ? len : 0, left, right);
  store_plain(memory, first_row, first_column, rows, conv.filters,
              [&](const float* sums, int row, int column) {
                const bool filled = row < filled_rows;
                finish.store(sums, row, column, filled, filled ? other_of(row) : 0);
              });
}

KERNEL_BLOCKS(THREADS, 2)
conv2d_f16_unaligned(const real* RESTRICT x, const real* RESTRICT w, const float* RESTRICT scale,
                     const float* RESTRICT bias, const real* RESTRICT residual,
                     const int* RESTRICT count, real* RESTRICT y, float*, Conv conv, int relu,
                     unsigned char* RESTRICT signs) {
  const PlainRows finish{y,       scale, bias,         residual, nullptr,
                         nullptr, signs, conv.filters, relu};
  conv2d_plain(x, w, finish, count, conv, [](int row) { return row; });
}
EXPORT(conv2d_f16_unaligned)

KERNEL_BLOCKS(THREADS, 2)
conv2d_masked_f16_unaligned(const real* RESTRICT x, const real* RESTRICT w,
                            const float* RESTRICT bias, const real* RESTRICT other,
                            const real* RESTRICT mask, const unsigned char* RESTRICT signs,
                            const int* RESTRICT count, real* RESTRICT y, float*, Conv conv,
                            int relu) {
  const PlainRows finish{y, nullptr, bias, other, mask, signs, nullptr, conv.filters, relu};
  conv2d_plain(x, w, finish, count, conv, [](int row) { return row; });
}
EXPORT(conv2d_masked_f16_unaligned)

KERNEL_BLOCKS(THREADS, 2)
conv2d_nearest_f16_unaligned(const real* RESTRICT x, const real* RESTRICT w,
                             const float* RESTRICT scale, const float* RESTRICT bias,
                             const real* RESTRICT residual, const int* RESTRICT count,
                             real* RESTRICT y, float*, Conv conv, int relu, Nearest nearest) {
  const PlainRows finish{y,       scale,   bias,         residual, nullptr,
                         nullptr, nullptr, conv.filters, relu};
  conv2d_plain(x, w, finish, count, conv, [&](int row) { return nearest.row(row); });
}
EXPORT(conv2d_nearest_f16_unaligned)

// Residue classes by the stride: conv2d_grad_input.cu.
KERNEL_BLOCKS(THREADS, 2)
conv2d_grad_input_f16_unaligned(const real* RESTRICT g, const real* RESTRICT w,
                                const float* RESTRICT bias, const real* RESTRICT other,
                                const real* RESTRICT mask, const unsigned char* RESTRICT signs,
                                const int* RESTRICT count, real* RESTRICT dx, float*, Conv conv,
                                int relu) {
  SHARED(float, memory, PLAIN_FLOATS);
  const int stride = conv.stride, pad = conv.pad, len = conv.filter_len();
  const ResidueAxis y(blockIdx.y / stride, stride, pad, conv.kernel_h, conv.height);
  const ResidueAxis x(blockIdx.y % stride, stride, pad, conv.kernel_w, conv.width);
  const int column_tiles = ceil_div(conv.channels, SIDE);
  const int first_row = blockIdx.x / column_tiles * SIDE;
  const int first_column = blockIdx.x % column_tiles * SIDE;
  const int per_image = y.extent * x.extent, rows = conv.images * per_image;
  if (first_row >= rows) return;  // the whole block: a class smaller than the largest
  const int filled_rows = filled_images(count, conv.images) * per_image;
  auto left = [&](int line, int k) {
    const int row = first_row + line, tap = k / conv.filters;
    if (row >= filled_rows) return 0.0f;
    const int p = row % per_image / x.extent + y.reach - (y.taps - 1) + tap / x.taps;
    const int q = row % per_image % x.extent + x.reach - (x.taps - 1) + tap % x.taps;
    const bool inside =
        (unsigned)p < (unsigned)conv.out_height && (unsigned)q < (unsigned)conv.out_width;
    const int64_t at = ((int64_t)(row / per_image) * conv.out_height + p) * conv.out_width + q;
    return inside ? g[at * conv.filters + k % conv.filters] : 0.0f;
  };
  auto right = [&](int line, int k) {
    const int tap = k / conv.filters, column = first_column + line;
    const int r = y.tap + (y.taps - 1 - tap / x.taps) * stride;
    const int s = x.tap + (x.taps - 1 - tap % x.taps) * stride;
    const int64_t at = (int64_t)(k % conv.filters) * len + (r * conv.kernel_w + s) * conv.channels;
    return column < conv.channels ? w[at + column] : 0.0f;
  };
  const int k_len = y.taps * x.taps * conv.filters;
  multiply_plain(memory, first_row < filled_rows ? k_len : 0, left, right);
  const PlainRows finish{dx, nullptr, bias, other, mask, signs, nullptr, conv.channels, relu};
  store_plain(memory, first_row, first_column, rows, conv.channels,
              [&](const float* sums, int row, int column) {
                const int h = y.first + row % per_image / x.extent * stride;
                const int c = x.first + row % per_image % x.extent * stride;
                const int to = (row / per_image * conv.height + h) * conv.width + c;
                finish.store(sums, to, column, row < filled_rows, to);
              });
}
EXPORT(conv2d_grad_input_f16_unaligned)

// `db` is null without the sum of g.
DEVICE void grad_weight_plain(const real* x, const real* g, const float* scale, const int* count,
                              float* dw, float* db, const Conv& conv) {
  SHARED(float, memory, PLAIN_FLOATS);
  const int columns = conv.filter_len(), column_tiles = ceil_div(columns, SIDE);
  const int first_row = blockIdx.x / column_tiles * SIDE;
  const int first_column = blockIdx.x % column_tiles * SIDE;
  const int per_image = conv.out_height * conv.out_width;
  auto left = [&](int line, int position) {
    const int row = first_row + line;
    return row < conv.filters ? g[(int64_t)position * conv.filters + row] : 0.0f;
  };
  auto right = [&](int line, int position) {
    const int column = first_column + line, tap = column / conv.channels;
    if (column >= columns) return 0.0f;
    const int in_image = position % per_image;
    const int h = in_image / conv.out_width * conv.stride - conv.pad + tap / conv.kernel_w;
    const int c = in_image % conv.out_width * conv.stride - conv.pad + tap % conv.kernel_w;
    const bool inside = (unsigned)h < (unsigned)conv.height && (unsigned)c < (unsigned)conv.width;
    const int64_t pixel = ((int64_t)(position / per_image) * conv.height + h) * conv.width + c;
    return inside ? x[pixel * conv.channels + column % conv.channels] : 0.0f;
  };
  const int positions = filled_images(count, conv.images) * per_image;
  const float row_sum = multiply_plain(memory, positions, left, right);
  const int row = first_row + threadIdx.x;
  if (db && first_column == 0 && threadIdx.x < SIDE && row < conv.filters) db[row] = row_sum;
  store_plain(memory, first_row, first_column, conv.filters, columns,
              [&](const float* sums, int row, int column) {
                const float factor = scale ? scale[row] : 1.0f;
                for (int e = 0; e < CHUNK && column + e < columns; e++)
                  dw[(int64_t)row * columns + column + e] = sums[e] * factor;
              });
}

KERNEL_BLOCKS(THREADS, 2)
conv2d_grad_weight_f16_unaligned(const real* RESTRICT x, const real* RESTRICT g,
                                 const float* RESTRICT scale, const int* RESTRICT count,
                                 float* RESTRICT dw, float*, Conv conv, Divisor, Divisor) {
  grad_weight_plain(x, g, scale, count, dw, nullptr, conv);
}
EXPORT(conv2d_grad_weight_f16_unaligned)

KERNEL_BLOCKS(THREADS, 2)
conv2d_grad_weight_bias_f16_unaligned(const real* RESTRICT x, const real* RESTRICT g,
                                      const float* RESTRICT scale, const int* RESTRICT count,
                                      float* RESTRICT dw, float* RESTRICT db, float*, Conv conv,
                                      Divisor, Divisor) {
  grad_weight_plain(x, g, scale, count, dw, db, conv);
}
EXPORT(conv2d_grad_weight_bias_f16_unaligned)

KERNEL(256)
conv2d_scale_weights_f16(const real* RESTRICT w, const float* RESTRICT scale, real* RESTRICT scaled,
                         int rows, int columns) {
  const int per_row = ceil_div(columns, CHUNK);
  const int64_t item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= (int64_t)rows * per_row) return;
  const int row = (int)(item / per_row), column = (int)(item % per_row) * CHUNK;
  for (int e = 0; e < CHUNK && column + e < columns; e++) {
    const int64_t at = (int64_t)row * columns + column + e;
    scaled[at] = w[at] * scale[row];
  }
}
EXPORT(conv2d_scale_weights_f16)
