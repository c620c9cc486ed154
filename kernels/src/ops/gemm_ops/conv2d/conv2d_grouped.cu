// The convolution of conv2d.cu and its gradients, with groups or dilation; torch's conv2d with
// groups or dilation.
//
//   x         [N, H, W, C]               real   in   input
//   w         [K, R, S, C / groups]      real   in   filters
//   g         [N, P, Q, K]               real   in   gradient of the output
//   y         [N, P, Q, K]               real   out  output
//   dx        [N, H, W, C]               real   out  gradient of the input
//   dw        [K, R, S, C / groups]      float  out  gradient of the filters
//   partials  [splits, rows, columns]    float  out  written instead of the result with split-k
//
// Launch: grid as in conv2d.cu. One group of any size, or groups with multiples of 64 channels
// and filters: smaller ones are merged, and filters expanded by conv2d_expand_groups_f16.
// Cost: 2*N*P*Q*K*R*S*C / groups FLOPs, with the number of merged groups.
// Numerics: same as conv2d.cu.
// Edge cases: same as conv2d.cu.
#include "platform.cuh"
#include "conv2d.cuh"
#include "conv2d_grad_input.cuh"
#include "conv2d_grad_weight.cuh"

REALS(fp16, fp32, tf32)

#ifndef REAL_IS_FLOAT
CONV2D_OF(GroupedConv, conv2d_grouped_f16_small, SmallTile, 4)
GRAD_INPUT_OF(GroupedConv, conv2d_grad_input_grouped_f16_small, SmallTile, false, 4)
GRAD_WEIGHT_OF(GroupedConv, conv2d_grad_weight_grouped_f16_small, SmallTile, false, 4)
#endif
CONV2D_OF(GroupedConv, conv2d_grouped_f16_unaligned, UnalignedTile, 3)
GRAD_INPUT_OF(GroupedConv, conv2d_grad_input_grouped_f16_unaligned, UnalignedTile, false, 3)
GRAD_WEIGHT_OF(GroupedConv, conv2d_grad_weight_grouped_f16_unaligned, UnalignedTile, false, 3)
