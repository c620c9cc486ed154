// Hopper (wgmma) variant of projected.cu.
//
//   x       [N, P, Q, C]  half   in   input of the convolution
//   w       [K, C]        half   in   filters of the convolution, scaled
//   from    [N, H, W, E]  half   in   input of the projection
//   w_from  [K, E]        half   in   filters of the projection, scaled
//   bias    [K]           float  in   sum of both biases
//   y       [N, P, Q, K]  half   out  output
//   signs   [N*P*Q*K/8]   byte   out  of y, or null
//
// Launch: same as projected.cu.
// Cost: same as projected.cu.
// Numerics: same as projected.cu, but wgmma rounds sums over 16 k differently from mma.sync.
// Edge cases: same as projected.cu.
#include "platform.cuh"
#include "gemm/warpgroup.cuh"
#include "projected.cuh"

ARCHITECTURES(compute_90a)

PROJECTED(projected_f16_tall, TallTile, 1)
PROJECTED(projected_f16_wide, WideTile, 3)
