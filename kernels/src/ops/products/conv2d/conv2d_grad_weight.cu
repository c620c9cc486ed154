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
#include "gemm/gemm.cuh"

#define GRAD_WEIGHT(name, tile, padded, blocks)                                            \
  KERNEL_BLOCKS(tile::THREADS, blocks)                                                     \
  name(const half* RESTRICT x, const half* RESTRICT g, const float* RESTRICT scale,        \
       const int* RESTRICT count, float* RESTRICT dw, float* RESTRICT partials, Conv conv, \
       Divisor per_image, Divisor per_line) {                                              \
    gemm<tile>(GradWeight(x, g, count, conv, padded, per_image, per_line), partials,       \
               WeightRows{dw, scale, conv.filter_len()});                                  \
  }                                                                                        \
  EXPORT(name)

GRAD_WEIGHT(conv2d_grad_weight_f16_large, LargeTile, false, 2)
GRAD_WEIGHT(conv2d_grad_weight_f16_small, SmallTile, false, 4)
GRAD_WEIGHT(conv2d_grad_weight_f16_padded_small, SmallTile, true, 4)
GRAD_WEIGHT(conv2d_grad_weight_f16_unaligned, UnalignedTile, false, 4)

#define GRAD_WEIGHT_BIAS(name, tile, padded, blocks)                                 \
  KERNEL_BLOCKS(tile::THREADS, blocks)                                               \
  name(const half* RESTRICT x, const half* RESTRICT g, const float* RESTRICT scale,  \
       const int* RESTRICT count, float* RESTRICT dw, float* RESTRICT db,            \
       float* RESTRICT partials, Conv conv, Divisor per_image, Divisor per_line) {   \
    gemm<tile>(GradWeight(x, g, count, conv, padded, per_image, per_line), partials, \
               WeightRows{dw, scale, conv.filter_len()}, RowSums<tile>{db});         \
  }                                                                                  \
  EXPORT(name)

GRAD_WEIGHT_BIAS(conv2d_grad_weight_bias_f16_large, LargeTile, false, 2)
GRAD_WEIGHT_BIAS(conv2d_grad_weight_bias_f16_small, SmallTile, false, 4)
GRAD_WEIGHT_BIAS(conv2d_grad_weight_bias_f16_padded_small, SmallTile, true, 4)
GRAD_WEIGHT_BIAS(conv2d_grad_weight_bias_f16_unaligned, UnalignedTile, false, 3)
