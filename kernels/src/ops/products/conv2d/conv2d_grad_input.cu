// Gradient of a convolution's input, dx = conv_transposed(g, w) (+ other, masked), as an implicit
// GEMM on tensor cores; torch.nn.grad.conv2d_input.
//
//   g         [N, P, Q, K]        half   in   gradient of the output; padded: rows of whole chunks
//   w         [K, R, S, C]        half   in   filters
//   bias      [C]                 float  in   or null
//   other     [N, H, W, C]        half   in   gradient that is added, or null
//   mask      [N, H, W, C]        half   in   dx is 0 where it is not positive, or null
//   signs     [N*H*W*C/8]         byte   in   of a mask, in its place, or null: src/signs.rs
//   count     [1]                 int    in   images in use, or null: all
//   dx        [N, H, W, C]        half   out  0 in images from the count on
//   partials  [splits, N*H*W, C]  float  out  in place of dx where the reduction is split
//
// Launch: x = tiles of D, columns fastest, for the largest class; y = classes; z = splits; 128
// threads; stages in dynamic shared memory.
// Cost: 2*N*P*Q*K*R*S*C FLOPs; compute-bound.
// Numerics: fp32 sums in order of k; deterministic.
// Edges: images from the count on are not read; a class without taps gets 0 (or the epilogue's
// value of it).
//
// A stride splits the positions of x into stride^2 residue classes, each of which meets only taps
// of its own: a class is a convolution of stride 1, and no product with a zero is made.
//
// GEMM, for each class: the rows of D are the positions of the class, its columns the C channels; k
// runs over the class's taps and K. With bias and ReLU it is also a transposed convolution.
// conv2d_reduce_f16 sums the partials.
#include "platform.cuh"
#include "gemm/loaders.cuh"
#include "gemm/gradient.cuh"

template <class T, bool ALIGNED, bool PADDED>
DEVICE void conv2d_grad_input(const half* g, const half* w, const GradientRows& finish,
                              const int* count, float* partials, const Conv& conv) {
  using Left = RowOperand<T::ROWS>;
  using Right = ColumnOperand<T::COLUMNS>;
  DYNAMIC_SHARED(memory);
  half* stages = (half*)memory;
  const int stride = conv.stride, pad = conv.pad;
  const ResidueAxis y(blockIdx.y / stride, stride, pad, conv.kernel_h, conv.height);
  const ResidueAxis x(blockIdx.y % stride, stride, pad, conv.kernel_w, conv.width);
  const int column_tiles = ceil_div(conv.channels, T::COLUMNS);
  const int first_row = blockIdx.x / column_tiles * T::ROWS;
  const int first_column = blockIdx.x % column_tiles * T::COLUMNS;
  const int per_image = y.extent * x.extent, rows = conv.images * per_image;
  if (first_row >= rows) return;  // the whole block: a class smaller than the largest
  const int filled_rows = filled_images(count, conv.images) * per_image;

  const Taps taps{y.taps, x.taps};
  Share share = share_of(taps.k_blocks(conv.filters, DEPTH, ALIGNED));
  if (first_row >= filled_rows) share.len = 0;
  auto window = [&](int row, int& image, int& top, int& left) {
    image = row / per_image;
    top = row % per_image / x.extent + y.reach - (y.taps - 1);
    left = row % per_image % x.extent + x.reach - (x.taps - 1);
    return row < filled_rows;
  };
  const int pitch = conv.gradient_pitch(PADDED);
  auto from = grad_input_operands<ALIGNED, Left, Right>(g, w, conv, pitch, y, x, share, first_row,
                                                        first_column, window);
  Sums<T> sums;
  multiply<T, Left, Right>(sums, from, share.len, stages);

  auto place = [&](int row) {
    if (stride == 1) return row;
    const int image = row / per_image, line = row % per_image / x.extent;
    const int h = y.first + line * stride, w = x.first + row % per_image % x.extent * stride;
    return (image * conv.height + h) * conv.width + w;
  };
  const Corner corner{first_row, first_column, rows, filled_rows, conv.channels};
  const int positions = conv.images * conv.height * conv.width;
  store_tile(sums, stages, corner, split_of(partials, positions, conv.channels), place, finish);
}

#define GRAD_INPUT(name, tile, aligned, padded, blocks)                                            \
  KERNEL_BLOCKS(THREADS, blocks)                                                                   \
  name(const half* RESTRICT g, const half* RESTRICT w, const float* RESTRICT bias,                 \
       const half* RESTRICT other, const half* RESTRICT mask, const unsigned char* RESTRICT signs, \
       const int* RESTRICT count, half* RESTRICT dx, float* RESTRICT partials, Conv conv,          \
       int relu) {                                                                                 \
    const GradientRows finish{dx, bias, other, mask, signs, conv.channels, relu};                  \
    conv2d_grad_input<tile, aligned, padded>(g, w, finish, count, partials, conv);                 \
  }                                                                                                \
  EXPORT(name)

GRAD_INPUT(conv2d_grad_input_f16_large, LargeTile, true, false, 2)
GRAD_INPUT(conv2d_grad_input_f16_small, SmallTile, true, false, 4)
GRAD_INPUT(conv2d_grad_input_f16_padded_small, SmallTile, true, true, 4)
GRAD_INPUT(conv2d_grad_input_f16_unaligned, SmallTile, false, false, 3)
