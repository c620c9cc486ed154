// Hopper (wgmma) variants of the convolutions of conv2d.cu, conv2d_grad_input.cu and
// conv2d_grad_weight.cu.
//
//   x         [N, H, W, C]        half   in   input
//   w         [K, R, S, C]        half   in   filters
//   g         [N, P, Q, K]        half   in   gradient of the output
//   y         [N, P, Q, K]        half   out  output
//   dx        [N, H, W, C]        half   out  gradient of the input
//   dw        [K, R, S, C]        float  out  gradient of the filters
//   partials  [splits, N*P*Q, K]  float  out  written instead of the result with split-k
//
// Launch: same as conv2d.cu; an SM holds one tall tile of 256 threads, two deep ones of 128,
// three wide ones or four others.
// Cost: same as conv2d.cu; a 3x3 of 256 channels on 12 maps of 200x336 reaches 566 TFLOP/s on an
// H200.
// Numerics: same as conv2d.cu, except that wgmma rounds sums over 16 k differently from mma.sync.
// Edge cases: same as conv2d.cu.
#include "platform.cuh"
#include "gemm/warpgroup.cuh"
#include "conv2d.cuh"
#include "conv2d_grad_input.cuh"
#include "conv2d_grad_weight.cuh"

ARCHITECTURES(compute_90a)

CONV2D(conv2d_f16_tall, TallTile, 1)
CONV2D(conv2d_f16_wide, WideTile, 3)
CONV2D(conv2d_f16_narrow, NarrowTile, 4)
CONV2D_OF(GroupedConv, conv2d_grouped_f16_narrow, NarrowTile, 4)
CONV2D_MASKED(conv2d_masked_f16_deep, DeepTile, 2)
CONV2D_NEAREST(conv2d_nearest_f16_wide, WideTile, 3)
GRAD_INPUT(conv2d_grad_input_f16_tall, TallTile, false, 1)
GRAD_INPUT(conv2d_grad_input_f16_wide, WideTile, false, 3)
GRAD_INPUT(conv2d_grad_input_f16_narrow, NarrowTile, false, 4)
GRAD_INPUT_OF(GroupedConv, conv2d_grad_input_grouped_f16_narrow, NarrowTile, false, 4)
GRAD_WEIGHT(conv2d_grad_weight_f16_tall, TallTile, false, 1)
GRAD_WEIGHT(conv2d_grad_weight_f16_wide, WideTile, false, 3)
GRAD_WEIGHT(conv2d_grad_weight_f16_narrow, NarrowTile, false, 4)
GRAD_WEIGHT(conv2d_grad_weight_f16_low, LowTile, false, 4)
GRAD_WEIGHT_OF(GroupedConv, conv2d_grad_weight_grouped_f16_low, LowTile, false, 4)
