// The product of projected.cu on Hopper, by products of warpgroups.
//
//   x       [N, P, Q, C]  half   in   input of the convolution
//   w       [K, C]        half   in   its filters, scaled
//   from    [N, H, W, E]  half   in   input of the projection
//   w_from  [K, E]        half   in   its filters, scaled
//   bias    [K]           float  in   summands of both
//   y       [N, P, Q, K]  half   out  output
//   signs   [N*P*Q*K/8]   byte   out  of y, or null
//
// Launch: as there.
// Cost: as there.
// Numerics: as there, but that 16 products are summed by other rules than those of mma.sync.
// Edges: as there.
#include "platform.cuh"
#include "gemm/warpgroup.cuh"
#include "projected.cuh"

ARCHITECTURES(compute_90a)

PROJECTED(projected_f16_tall, TallTile, 1)
PROJECTED(projected_f16_wide, WideTile, 3)
