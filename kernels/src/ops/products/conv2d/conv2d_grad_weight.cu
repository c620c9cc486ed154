// Gradient of a convolution's weights, scale * (g^T windows(x)), as an implicit GEMM on tensor
// cores; torch.nn.grad.conv2d_weight.
//
//   x         [N, H, W, C]        half   in   input
//   g         [N, P, Q, K]        half   in   gradient of the output; padded: rows of whole chunks
//   scale     [K]                 float  in   factor of a filter, or null
//   count     [1]                 int    in   images in use, or null: all
//   dw        [K, R, S, C]        float  out  gradient of the filters
//   db        [splits, K]         float  out  sum of g over a split's positions; _bias_ kernels
//   partials  [splits, K, R*S*C]  float  out  in place of dw where the reduction is split
//
// Launch: x = tiles of D, columns fastest; z = splits, which share the positions that the count
// leaves; 128 threads; stages in dynamic shared memory.
// Cost: 2*N*P*Q*K*R*S*C FLOPs; compute-bound; a 3x3 of 256 channels has 36 large tiles and 806,400
// positions (12 maps of 200x336), so it lives off the splits.
// Numerics: fp32 sums in order of position; deterministic.
// Edges: images from the count on are not read; no images give 0.
//
// GEMM: the rows of D are the K filters, its columns taps and C; k runs over the N*P*Q positions.
// conv2d_reduce_f32 sums the partials.
#include "platform.cuh"
#include "gemm/loaders.cuh"
#include "gemm/epilogue.cuh"

// With BIAS the blocks of the first columns add up their rows of g, as products with ones.
template <class T, bool ALIGNED, bool PADDED, bool BIAS>
DEVICE void conv2d_grad_weight(const half* x, const half* g, const float* scale, const int* count,
                               float* dw, float* db, float* partials, const Conv& conv,
                               Divisor per_image, Divisor per_line) {
  using Left = ColumnOperand<T::ROWS>;
  using Right = ColumnOperand<T::COLUMNS>;
  DYNAMIC_SHARED(memory);
  half* stages = (half*)memory;
  const int columns = conv.filter_len(), column_tiles = ceil_div(columns, T::COLUMNS);
  const int first_row = blockIdx.x / column_tiles * T::ROWS;
  const int first_column = blockIdx.x % column_tiles * T::COLUMNS;
  const int positions = filled_images(count, conv.images) * conv.out_height * conv.out_width;

  const Share share = share_of(ceil_div(positions, DEPTH));
  using From = typename Either<ALIGNED, PositionOperands<Left, Right>,
                                GatheredPositionOperands<Left, Right>>::Type;
  From from(x, g, conv, conv.gradient_pitch(PADDED), per_image, per_line, positions, share,
            first_row, first_column);
  Sums<T> sums;
  if constexpr (BIAS) {
    RowSums<T> row_sums(first_column == 0);
    multiply<T, Left, Right>(sums, row_sums, from, share.len, stages);
    row_sums.store(db + (int64_t)blockIdx.z * conv.filters, first_row, conv.filters);
  } else {
    multiply<T, Left, Right>(sums, from, share.len, stages);
  }

  const Corner corner{first_row, first_column, conv.filters, conv.filters, columns};
  store_tile(sums, stages, corner, split_of(partials, conv.filters, columns),
             [](int row) { return row; }, WeightRows{dw, scale, columns});
}

#define GRAD_WEIGHT(name, tile, aligned, padded)                                           \
  KERNEL(THREADS)                                                                          \
  name(const half* RESTRICT x, const half* RESTRICT g, const float* RESTRICT scale,        \
       const int* RESTRICT count, float* RESTRICT dw, float* RESTRICT partials, Conv conv, \
       Divisor per_image, Divisor per_line) {                                              \
    conv2d_grad_weight<tile, aligned, padded, false>(x, g, scale, count, dw, nullptr,      \
                                                     partials, conv, per_image, per_line); \
  }                                                                                        \
  EXPORT(name)

GRAD_WEIGHT(conv2d_grad_weight_f16_large, LargeTile, true, false)
GRAD_WEIGHT(conv2d_grad_weight_f16_small, SmallTile, true, false)
GRAD_WEIGHT(conv2d_grad_weight_f16_padded_small, SmallTile, true, true)
GRAD_WEIGHT(conv2d_grad_weight_f16_unaligned, SmallTile, false, false)

#define GRAD_WEIGHT_BIAS(name, tile, aligned, padded)                                         \
  KERNEL(THREADS)                                                                             \
  name(const half* RESTRICT x, const half* RESTRICT g, const float* RESTRICT scale,           \
       const int* RESTRICT count, float* RESTRICT dw, float* RESTRICT db,                     \
       float* RESTRICT partials, Conv conv, Divisor per_image, Divisor per_line) {            \
    conv2d_grad_weight<tile, aligned, padded, true>(x, g, scale, count, dw, db, partials,     \
                                                    conv, per_image, per_line);               \
  }                                                                                           \
  EXPORT(name)

GRAD_WEIGHT_BIAS(conv2d_grad_weight_bias_f16_large, LargeTile, true, false)
GRAD_WEIGHT_BIAS(conv2d_grad_weight_bias_f16_small, SmallTile, true, false)
GRAD_WEIGHT_BIAS(conv2d_grad_weight_bias_f16_padded_small, SmallTile, true, true)
GRAD_WEIGHT_BIAS(conv2d_grad_weight_bias_f16_unaligned, SmallTile, false, false)
