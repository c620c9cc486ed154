// Gradient of a convolution's input, dx = conv_transposed(g, w) (+ other, masked), as an implicit
// GEMM on tensor cores; torch.nn.grad.conv2d_input.
//
//   g         [N, P, Q, K]        real   in   gradient of the output; may be padded to whole chunks
//   w         [K, R, S, C]        real   in   filters
//   bias      [C]                 float  in   or null
//   other     [N, H, W, C]        real   in   gradient that is added, or null
//   mask      [N, H, W, C]        real   in   dx is 0 where it is not positive, or null
//   signs     [N*H*W*C/8]         byte   in   signs of a mask, instead of it, or null: src/signs.rs
//   count     [1]                 int    in   images in use, or null: all
//   dx        [N, H, W, C]        real   out  not written in images past the count
//   partials  [splits, N*H*W, C]  float  out  written instead of dx with split-k
//
// Launch: x = tiles of D, columns fastest, for the largest class; y = classes; z = splits; 128
// threads; stages in dynamic shared memory.
// Cost: 2*N*P*Q*K*R*S*C FLOPs; compute-bound.
// Numerics: fp32 accumulation in order of k; deterministic.
// Edge cases: images past the count are not read; a class without taps gets 0 (or the epilogue's
// value for 0).
//
// A stride splits the positions of x into stride^2 residue classes, and each class uses only its
// own taps: it is a convolution of stride 1, without multiplications by padding zeros.
//
// GEMM, per class: GradInput of gemm/passes.cuh. With bias and ReLU it also computes a transposed
// convolution. conv2d_reduce_gradient_f16 sums the partials; there are none if `real` is float.
#include "platform.cuh"
#include "conv2d_grad_input.cuh"

REALS(fp16, fp32, tf32)

#ifndef REAL_IS_FLOAT
GRAD_INPUT(conv2d_grad_input_f16_large, LargeTile, false, 2)
GRAD_INPUT(conv2d_grad_input_f16_small, SmallTile, false, 4)
GRAD_INPUT(conv2d_grad_input_f16_padded_small, SmallTile, true, 4)
#endif
GRAD_INPUT(conv2d_grad_input_f16_unaligned, UnalignedTile, false, 3)
