// The product of stem.cu on Hopper, by products of warpgroups.
//
//   x         [N, H, W, 4]   half   in   images
//   arranged  [K, 7, 8 * 4]  half   in   filters as rows of the window lie in x
//   scale     [K]            float  in   factor of a filter
//   bias      [K]            float  in   summand of a filter
//   y         [N, P, Q, K]   half   out  output
//
// Launch: as there.
// Cost: as there.
// Numerics: as there, but that 16 products are summed by other rules than those of mma.sync.
// Edges: as there.
#include "platform.cuh"
#include "gemm/warpgroup.cuh"
#include "gemm/gemm.cuh"
#include "gemm/stem.cuh"

ARCHITECTURES(compute_90a)

KERNEL_BLOCKS(NarrowTile::THREADS, 4)
stem_f16_narrow(const half* RESTRICT x, const half* RESTRICT arranged, const float* RESTRICT scale,
                const float* RESTRICT bias, half* RESTRICT y, Conv conv) {
  const ActivationRows finish{y, scale, bias, nullptr, conv.filters, 1};
  gemm<NarrowTile>(Stem(x, arranged, conv), nullptr, finish);
}
