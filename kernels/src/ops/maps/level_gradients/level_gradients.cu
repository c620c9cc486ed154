// Gradient of the maps of a pyramid from all their readers, the RoIs of up to four heads and
// patches; each map is written once.
//
//   heads    [M, pooled, pooled, C]     real  in   gradient of the pooled RoIs of each, or null
//   patches  [N * per_image, S, S, C]   real  in   gradient of patches, or null
//   maps     [N, height, width, C]      real  out  gradient of each level's map
//
// Launch: 256 threads per 8x8 tile of a map and 16 vectors of 8 channels (x8), or 16 channels; an
// earlier launch of roi_align_grad_lists lists the RoIs of each head.
// Cost: the maps written once (12 images of 800x1344: 0.55 GB), and the gradients read;
// memory-bound where tiles are empty, else latency-bound.
// Numerics: fp32 in the order of the heads, then patches, each in the order of its rows; rounded
// once; deterministic.
// Edge cases: maps beyond the levels of the RoIs get only patches.
#include "platform.cuh"
#include "map_gradients.cuh"

REALS(fp16, fp32)

template <int W, int S, typename... Heads>
DEVICE void level_gradients(const PatchGradients& patches, const Pyramid& maps,
                            const Heads&... heads) {
  SHARED(int, ranks, 32);
  SHARED(int, hits, TILE_BLOCK);
  SHARED(int, ys, TILE_BLOCK);
  SHARED(int, xs, TILE_BLOCK);
  SHARED_2D(unsigned, sets, BATCH, LINES);
  DYNAMIC_SHARED(weights);
  const Tile tile = tile_of(maps);
  const int channel = (blockIdx.y * TILE_VECTORS + threadIdx.x % TILE_VECTORS) * W;
  float sum[TILE_PIXELS][W];
  for (int j = 0; j < TILE_PIXELS; j++) clear(sum[j]);
  const RoiScratch of_rois{ranks, hits, sets, (float*)weights};
  const PatchScratch of_patches{ranks, hits, ys, xs};
  (add_rois<W>(heads, maps, tile, channel, of_rois, sum), ...);
  add_patches<W, S>(patches, maps, tile, channel, of_patches, sum);
  store_pixels<W>(maps, tile, channel, sum);
}

#define LEVEL_GRADIENTS(suffix, W, S)                                                       \
  KERNEL_BLOCKS(256, 3)                                                                     \
  level_gradients_##suffix(RoiGradients first, RoiGradients second, PatchGradients patches, \
                           Pyramid maps) {                                                  \
    level_gradients<W, S>(patches, maps, first, second);                                    \
  }
LEVEL_GRADIENTS(f16x8, 8, 3)
LEVEL_GRADIENTS(f16, 1, 3)
LEVEL_GRADIENTS(5x5_f16x8, 8, 5)
LEVEL_GRADIENTS(5x5_f16, 1, 5)

#define LEVEL_GRADIENTS_OF_FOUR(suffix, W)                                            \
  KERNEL_BLOCKS(256, 2)                                                               \
  level_gradients_of_four_##suffix(RoiGradients first, RoiGradients second,           \
                                   RoiGradients third, RoiGradients fourth,           \
                                   PatchGradients patches, Pyramid maps) {            \
    level_gradients<W, 3>(patches, maps, first, second, third, fourth);               \
  }
LEVEL_GRADIENTS_OF_FOUR(f16x8, 8)
LEVEL_GRADIENTS_OF_FOUR(f16, 1)
