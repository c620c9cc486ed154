// Forward convolution y = relu(conv(x, w) * scale + bias + residual) as an implicit GEMM on tensor
// cores; torch's conv2d.
//
//   x         [N, H, W, C]        half   in   input
//   w         [K, R, S, C]        half   in   filters
//   scale     [K]                 float  in   factor of a filter, or null
//   bias      [K]                 float  in   or null
//   residual  [N, P, Q, K]        half   in   added before the ReLU, or null
//   count     [1]                 int    in   images in use, or null: all
//   y         [N, P, Q, K]        half   out  0 in images from the count on
//   partials  [splits, N*P*Q, K]  float  out  in place of y where the reduction is split
//   signs     [N*P*Q*K/8]         byte   out  of y, as in src/signs.rs, or null
//
// Launch: x = tiles of D, columns fastest, so that neighbours share rows of x; z = splits; 128
// threads; stages in dynamic shared memory.
// Cost: 2*N*P*Q*K*R*S*C FLOPs; compute-bound; a 3x3 of 256 channels on 12 maps of 200x336: 951
// GFLOP.
// Numerics: fp32 sums in order of k; deterministic.
// Edges: images from the count on are not read.
//
// GEMM: the rows of D are the N*P*Q positions, its columns the K filters; k runs over taps and C. A
// linear layer is the 1x1 case on 1x1 images. conv2d_reduce_f16 sums the partials.
//
// conv2d_masked makes a gradient, that of a transposed convolution: it adds `other` and is 0 where
// `mask` [N, P, Q, K] is not positive; signs are read in place of a mask, not written.
// conv2d_nearest reads a smaller residual at the nearest position.
#include "platform.cuh"
#include "gemm/loaders.cuh"
#include "gemm/gradient.cuh"
#include "gemm/nearest.cuh"

template <class T, bool ALIGNED, class Finish>
DEVICE void conv2d(const half* x, const half* w, const Finish& finish, const int* count,
                   float* partials, const Conv& conv) {
  using Left = RowOperand<T::ROWS>;
  using Right = RowOperand<T::COLUMNS>;
  DYNAMIC_SHARED(memory);
  half* stages = (half*)memory;
  const int column_tiles = ceil_div(conv.filters, T::COLUMNS);
  const int first_row = blockIdx.x / column_tiles * T::ROWS;
  const int first_column = blockIdx.x % column_tiles * T::COLUMNS;
  const int per_image = conv.out_height * conv.out_width, rows = conv.images * per_image;
  const int filled_rows = filled_images(count, conv.images) * per_image;

  const Taps taps{conv.kernel_h, conv.kernel_w};
  Share share = share_of(taps.k_blocks(conv.channels, DEPTH, ALIGNED));
  if (first_row >= filled_rows) share.len = 0;
  auto window = [&](int row, int& image, int& top, int& left) {
    image = row / per_image;
    const int p = row % per_image / conv.out_width, q = row % per_image % conv.out_width;
    top = p * conv.stride - conv.pad;
    left = q * conv.stride - conv.pad;
    return row < filled_rows;
  };
  auto from =
      forward_operands<ALIGNED, Left, Right>(x, w, conv, share, first_row, first_column, window);
  Sums<T> sums;
  multiply<T, Left, Right>(sums, from, share.len, stages);

  const Corner corner{first_row, first_column, rows, filled_rows, conv.filters};
  store_tile(
      sums, stages, corner, split_of(partials, rows, conv.filters), [](int row) { return row; },
      finish);
}

#define CONV2D(name, tile, aligned, blocks)                                                  \
  KERNEL_BLOCKS(THREADS, blocks)                                                             \
  name(const half* RESTRICT x, const half* RESTRICT w, const float* RESTRICT scale,          \
       const float* RESTRICT bias, const half* RESTRICT residual, const int* RESTRICT count, \
       half* RESTRICT y, float* RESTRICT partials, Conv conv, int relu,                      \
       unsigned char* RESTRICT signs) {                                                      \
    const ActivationRows finish{y, scale, bias, residual, conv.filters, relu, signs};        \
    conv2d<tile, aligned>(x, w, finish, count, partials, conv);                              \
  }                                                                                          \
  EXPORT(name)

CONV2D(conv2d_f16_large, LargeTile, true, 2)
CONV2D(conv2d_f16_small, SmallTile, true, 4)
CONV2D(conv2d_f16_unaligned, SmallTile, false, 4)

#define CONV2D_MASKED(name, tile, aligned, blocks)                                                 \
  KERNEL_BLOCKS(THREADS, blocks)                                                                   \
  name(const half* RESTRICT x, const half* RESTRICT w, const float* RESTRICT bias,                 \
       const half* RESTRICT other, const half* RESTRICT mask, const unsigned char* RESTRICT signs, \
       const int* RESTRICT count, half* RESTRICT y, float* RESTRICT partials, Conv conv,           \
       int relu) {                                                                                 \
    const GradientRows finish{y, bias, other, mask, signs, conv.filters, relu};                    \
    conv2d<tile, aligned>(x, w, finish, count, partials, conv);                                    \
  }                                                                                                \
  EXPORT(name)

CONV2D_MASKED(conv2d_masked_f16_large, LargeTile, true, 2)
CONV2D_MASKED(conv2d_masked_f16_small, SmallTile, true, 4)
CONV2D_MASKED(conv2d_masked_f16_unaligned, SmallTile, false, 3)

#define CONV2D_NEAREST(name, tile, aligned, blocks)                                          \
  KERNEL_BLOCKS(THREADS, blocks)                                                             \
  name(const half* RESTRICT x, const half* RESTRICT w, const float* RESTRICT scale,          \
       const float* RESTRICT bias, const half* RESTRICT residual, const int* RESTRICT count, \
       half* RESTRICT y, float* RESTRICT partials, Conv conv, int relu, Nearest nearest) {   \
    const ActivationRows all{y, scale, bias, residual, conv.filters, relu};                  \
    conv2d<tile, aligned>(x, w, NearestRows{all, nearest}, count, partials, conv);           \
  }                                                                                          \
  EXPORT(name)

CONV2D_NEAREST(conv2d_nearest_f16_large, LargeTile, true, 2)
CONV2D_NEAREST(conv2d_nearest_f16_small, SmallTile, true, 4)
CONV2D_NEAREST(conv2d_nearest_f16_unaligned, SmallTile, false, 3)
