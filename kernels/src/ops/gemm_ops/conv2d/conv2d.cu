// Forward convolution y = relu(conv(x, w) * scale + bias + residual) as an implicit GEMM on tensor
// cores; torch's conv2d.
//
//   x         [N, H, W, C]        real   in   input
//   w         [K, R, S, C]        real   in   filters
//   scale     [K]                 float  in   scale of each filter, or null
//   bias      [K]                 float  in   or null
//   residual  [N, P, Q, K]        real   in   added before the ReLU, or null
//   count     [1]                 int    in   images in use, or null: all
//   y         [N, P, Q, K]        real   out  not written in images past the count
//   partials  [splits, N*P*Q, K]  float  out  written instead of y with split-k
//   signs     [N*P*Q*K/8]         byte   out  of y, laid out as in src/signs.rs, or null
//
// Launch: x = tiles of D, columns fastest, so that neighbours share rows of x; z = splits; 128
// threads; stages in dynamic shared memory.
// Cost: 2*N*P*Q*K*R*S*C FLOPs; compute-bound; a 3x3 of 256 channels on 12 maps of 200x336: 951
// GFLOP.
// Numerics: fp32 accumulation in order of k; deterministic.
// Edge cases: images past the count are not read.
//
// GEMM: Forward of gemm/passes.cuh. conv2d_reduce_f16 sums the partials. If `real` is float, it
// uses the main loop of gemm/plain.cuh, without split-k.
//
// conv2d_masked computes a gradient, that of a transposed convolution: it adds another gradient and
// is 0 where a mask [N, P, Q, K] is not positive; signs are read instead of a mask, not written.
// conv2d_nearest reads a smaller residual at the nearest position.
#include "platform.cuh"
#include "conv2d.cuh"

REALS(fp16, fp32, tf32)

#ifndef REAL_IS_FLOAT
CONV2D(conv2d_f16_large, LargeTile, 2)
CONV2D(conv2d_f16_small, SmallTile, 4)
CONV2D_MASKED(conv2d_masked_f16_large, LargeTile, 2)
CONV2D_MASKED(conv2d_masked_f16_small, SmallTile, 4)
CONV2D_NEAREST(conv2d_nearest_f16_large, LargeTile, 2)
CONV2D_NEAREST(conv2d_nearest_f16_small, SmallTile, 4)
#endif
CONV2D(conv2d_f16_unaligned, UnalignedTile, 3)
CONV2D_MASKED(conv2d_masked_f16_unaligned, UnalignedTile, 3)
CONV2D_NEAREST(conv2d_nearest_f16_unaligned, UnalignedTile, 3)
