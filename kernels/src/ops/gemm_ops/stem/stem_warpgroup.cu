// Hopper (wgmma) variant of stem.cu.
//
//   x         [N, H, W, 4]   half   in   images
//   arranged  [K, 7, 8 * 4]  half   in   filters in the layout of window rows of x
//   scale     [K]            float  in   scale of each filter
//   bias      [K]            float  in   bias of each filter
//   y         [N, P, Q, K]   half   out  output
//
// Launch: same as stem.cu.
// Cost: same as stem.cu.
// Numerics: same as stem.cu, except that wgmma rounds sums over 16 k differently from mma.sync.
// Edge cases: same as stem.cu.
#include "platform.cuh"
#include "gemm/warpgroup.cuh"
#include "gemm/gemm.cuh"
#include "gemm/stem.cuh"

ARCHITECTURES(compute_90a)

KERNEL_BLOCKS(NarrowTile::THREADS, 4)
stem_f16_narrow(const half* RESTRICT x, const half* RESTRICT arranged, const float* RESTRICT scale,
                const float* RESTRICT bias, half* RESTRICT y, Conv conv) {
  const ActivationRows epilogue{y, scale, bias, nullptr, conv.filters, 1};
  gemm<NarrowTile>(Stem(x, arranged, conv), nullptr, epilogue);
}
