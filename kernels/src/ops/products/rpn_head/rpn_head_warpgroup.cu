// The dense head of rpn_head.cu on Hopper, by products of warpgroups.
//
//   maps    [N, h, w, C]   half  in   of each level
//   w       [K, 3, 3, C]   half  in   filters of the 3x3 convolution
//   logits  [N, h, w, A]   half  out  of each level
//   deltas  [N, h, w, 4A]  half  out  of each level
//
// Launch: as there; 256 threads, 144 KiB of stages and a tile's outputs in dynamic shared memory.
// Cost: as there.
// Numerics: as there, but that 16 products are summed by other rules than those of mma.sync.
// Edges: as there.
#include "platform.cuh"
#include "gemm/warpgroup.cuh"
#include "rpn_head.cuh"

ARCHITECTURES(compute_90a)

RPN_HEAD(rpn_head_f16_tall, TallTile, 1)
