// Gradient of a convolution's input, dx = conv_transposed(g, w) (+ other, masked), as an implicit
// GEMM on tensor cores; torch.nn.grad.conv2d_input.
//
//   g         [N, P, Q, K]        real   in   gradient of the output; padded: rows of whole chunks
//   w         [K, R, S, C]        real   in   filters
//   bias      [C]                 float  in   or null
//   other     [N, H, W, C]        real   in   gradient that is added, or null
//   mask      [N, H, W, C]        real   in   dx is 0 where it is not positive, or null
//   signs     [N*H*W*C/8]         byte   in   of a mask, in its place, or null: src/signs.rs
//   count     [1]                 int    in   images in use, or null: all
//   dx        [N, H, W, C]        real   out  0 in images from the count on
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
// GEMM, for each class: GradInput of gemm/passes.cuh. With bias and ReLU it is also a transposed
// convolution. conv2d_reduce_gradient_f16 sums the partials; where `real` is float there are none.
#include "platform.cuh"
#include "conv2d_grad_input.cuh"

REALS(fp16, fp32, tf32)

#ifndef REAL_IS_FLOAT
GRAD_INPUT(conv2d_grad_input_f16_large, LargeTile, false, 2)
GRAD_INPUT(conv2d_grad_input_f16_small, SmallTile, false, 4)
GRAD_INPUT(conv2d_grad_input_f16_padded_small, SmallTile, true, 4)
#endif
GRAD_INPUT(conv2d_grad_input_f16_unaligned, UnalignedTile, false, 3)
