// Gradient of a convolution's weights, scale * (g^T windows(x)), as an implicit GEMM on tensor
// cores; torch.nn.grad.conv2d_weight.
//
//   x         [N, H, W, C]        real   in   input
//   g         [N, P, Q, K]        real   in   gradient of the output; rows may be padded to chunks
//   scale     [K]                 float  in   scale of each filter, or null
//   count     [1]                 int    in   images in use, or null: all
//   dw        [K, R, S, C]        float  out  gradient of the filters
//   partials  [splits, K, R*S*C]  float  out  written instead of dw with split-k
//
// Launch: x = tiles of D, columns fastest; z = splits, which share the positions within the
// count; 128 threads; stages in dynamic shared memory.
// Cost: 2*N*P*Q*K*R*S*C FLOPs; compute-bound; a 3x3 of 256 channels is 36 large tiles and
// 806,400 positions (12 maps of 200x336), so it needs split-k.
// Numerics: fp32 accumulation in order of position; deterministic.
// Edge cases: images past the count are not read; without images dw is 0.
//
// GEMM: GradWeight of gemm/passes.cuh. conv2d_reduce_f32 sums the partials; there are no partials
// if `real` is float.
#include "platform.cuh"
#include "conv2d_grad_weight.cuh"

REALS(fp16, fp32, tf32)

#ifndef REAL_IS_FLOAT
GRAD_WEIGHT(conv2d_grad_weight_f16_large, LargeTile, false, 2)
GRAD_WEIGHT(conv2d_grad_weight_f16_small, SmallTile, false, 4)
GRAD_WEIGHT(conv2d_grad_weight_f16_padded_small, SmallTile, true, 4)
#endif
GRAD_WEIGHT(conv2d_grad_weight_f16_unaligned, UnalignedTile, false, 4)
