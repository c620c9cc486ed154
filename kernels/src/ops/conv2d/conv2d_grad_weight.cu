// Gradient of a convolution's weights, dw[k] = scale[k] * sum over positions of g[k] * window(x),
// an implicit GEMM on tensor cores. Matches torch.nn.grad.conv2d_weight.
//
// GEMM: D [M, N], M = K filters, N = taps and C, reduction over N*P*Q positions.
// Tensors: x [N,H,W,C] half, g [N,P,Q,K] half, scale [K] float or null, count [1] int or null (all
// in) -> dw [K,R,S,C] float (overwritten), or, where the reduction is split, partials [splits, K,
// R*S*C] float, which conv2d_reduce_f32 sums. Launch: x = tiles of D, columns fastest; z = splits,
// which share what positions the count leaves; 128 threads; the tile's stages in dynamic shared
// memory. Cost: 2*N*P*Q*K*R*S*C FLOPs, bound by compute; a 3x3 of 256 channels has 36 large tiles
// and, on 12 maps of 200x336, 806,400 positions: it lives off the splits. Numerics: fp32 sums in
// order of position, deterministic. Edges: images from count on are not read; none give 0.
#include "platform.cuh"
#include "gemm/loaders.cuh"
#include "gemm/epilogue.cuh"

template <class T, bool ALIGNED>
DEVICE void conv2d_grad_weight(const half* x, const half* g, const float* scale, const int* count,
                               float* dw, float* partials, const Conv& conv, Divisor per_image,
                               Divisor per_line) {
  using Left = ColumnOperand<T::ROWS>;
  using Right = ColumnOperand<T::COLUMNS>;
  DYNAMIC_SHARED(memory);
  half* stages = (half*)memory;
  const int columns = conv.filter_len(), column_tiles = ceil_div(columns, T::COLUMNS);
  const int first_row = blockIdx.x / column_tiles * T::ROWS;
  const int first_column = blockIdx.x % column_tiles * T::COLUMNS;
  const int positions = filled_images(count, conv.images) * conv.out_height * conv.out_width;

  const Share share = share_of(ceil_div(positions, DEPTH));
  PositionColumns<Left, ALIGNED> gradients(g, conv.filters, positions, share.first, first_row);
  WindowColumns<Right, ALIGNED> windows(x, conv, per_image, per_line, positions, share.first,
                                        first_column);
  Sums<T> sums;
  multiply<T, Left, Right>(sums, gradients, windows, share.len, stages);

  auto place = [&](int row, bool&) { return row < conv.filters ? row : -1; };
  const WeightRows finish{dw, scale, columns};
  store_tile(sums, stages, first_row, first_column, partials, conv.filters, columns, place, finish);
}

#define GRAD_WEIGHT(name, tile, aligned)                                                   \
  KERNEL(THREADS)                                                                          \
  name(const half* RESTRICT x, const half* RESTRICT g, const float* RESTRICT scale,        \
       const int* RESTRICT count, float* RESTRICT dw, float* RESTRICT partials, Conv conv, \
       Divisor per_image, Divisor per_line) {                                              \
    conv2d_grad_weight<tile, aligned>(x, g, scale, count, dw, partials, conv, per_image,   \
                                      per_line);                                           \
  }                                                                                        \
  EXPORT(name)

GRAD_WEIGHT(conv2d_grad_weight_f16_large, LargeTile, true)
GRAD_WEIGHT(conv2d_grad_weight_f16_small, SmallTile, true)
GRAD_WEIGHT(conv2d_grad_weight_f16_unaligned, SmallTile, false)
