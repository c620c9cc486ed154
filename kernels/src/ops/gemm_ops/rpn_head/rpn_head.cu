// Dense head of a region proposal network on all levels of a pyramid: a 3x3 convolution, ReLU, and
// two 1x1 convolutions, with the hidden map kept on chip.
//
//   maps      [N, h, w, C]   half   in   map of each level
//   w         [K, 3, 3, C]   half   in   filters of the 3x3 convolution; C and K multiples of 8
//   bias      [K]            float  in   of the 3x3 convolution
//   w_logits  [A, K]         half   in   a filter per anchor of a cell; A is at most 3
//   b_logits  [A]            float  in   their biases
//   w_deltas  [4A, K]        half   in   four per anchor
//   b_deltas  [4A]           float  in   their biases
//   logits    [N, h, w, A]   half   out  logits of each level
//   deltas    [N, h, w, 4A]  half   out  deltas of each level
//
// Launch: x = tiles of rows of all levels; a block loops over the column tiles of the 3x3
// convolution; 128 threads; stages and a tile's outputs in dynamic shared memory.
// Cost: 2*N*h*w*K*(9*C + 5*A) FLOPs; compute-bound (12 images of 800x1344: 1.27 TFLOP). The hidden
// map, 548 MB there, is neither written nor read.
// Numerics: fp32 accumulation in order of k; the hidden map is rounded to half; the second GEMM
// accumulates in fp32 in the order of a warp's columns, warps and tiles. Deterministic.
// Edge cases: positions outside a map are zeros.
//
// GEMM: as conv2d, of 3x3 windows. A warp's accumulators, rounded, are operand A of a second GEMM,
// whose columns are the outputs: fragments of D are fragments of A.
#include "platform.cuh"
#include "rpn_head.cuh"

RPN_HEAD(rpn_head_f16_large, LargeTile, 2)
RPN_HEAD(rpn_head_f16_small, SmallTile, 4)
