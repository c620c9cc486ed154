// Hopper (wgmma) variant of rpn_head.cu.
//
//   maps    [N, h, w, C]   half  in   map of each level
//   w       [K, 3, 3, C]   half  in   filters of the 3x3 convolution
//   logits  [N, h, w, A]   half  out  logits of each level
//   deltas  [N, h, w, 4A]  half  out  deltas of each level
//
// Launch: same as rpn_head.cu, but 256 threads, and 144 KiB of dynamic shared memory for stages and
// a
// tile's outputs.
// Cost: same as rpn_head.cu.
// Numerics: same as rpn_head.cu, except that wgmma rounds sums over 16 k differently from mma.sync.
// Edge cases: same as rpn_head.cu.
#include "platform.cuh"
#include "gemm/warpgroup.cuh"
#include "rpn_head.cuh"

ARCHITECTURES(compute_90a)

RPN_HEAD(rpn_head_f16_tall, TallTile, 1)
