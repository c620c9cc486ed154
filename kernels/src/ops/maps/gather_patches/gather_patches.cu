// Copies square neighbourhoods of the cells of selected anchors, and adds their gradients back to
// the maps.
//
// gather_patches:
//   maps     [N, height, width, C]     real  in   feature map of each level
//   idx      [N, per_image]            int   in   anchors by level, y, x, cell; -1 = none
//   patches  [N * per_image, S, S, C]  real  out  0 outside the map and in rows without an anchor
//
// gather_patches_grad:
//   g     [N * per_image, S, S, C]  real  in   gradient of the patches
//   idx   [N, per_image]            int   in   as above
//   maps  [N, height, width, C]     real  out  gradient of each level's map
//
// Launch: a block of 256 per row; for the gradient, one per 8x8 tile of each map and 16 vectors of
// 8 channels (x8), or 16 channels.
// Cost: 2 * S * S * C bytes twice per row; the gradient writes the maps once (12 images of
// 800x1344: 0.55 GB); memory-bound.
// Numerics: exact copies; the gradient sums in fp32 in the order of the rows.
// Edge cases: anchors outside the maps are ignored.
#include "platform.cuh"
#include "map_gradients.cuh"

REALS(fp16, fp32)

template <int W>
DEVICE void gather(const Pyramid& maps, const int* idx, real* patches, int per_image,
                   int anchors_per_cell, int reach) {
  const int row = blockIdx.x, image = row / per_image, vectors = maps.channels / W;
  const Cell cell = cell_of(maps, idx[row], anchors_per_cell);
  const int level = max(cell.level, 0), height = maps.height[level], width = maps.width[level];
  const real* map = maps.map[level] + (uint64_t)image * height * width * maps.channels;
  const int side = 2 * reach + 1, area = side * side;
  real* patch = patches + (uint64_t)row * area * maps.channels;
  for (int item = threadIdx.x; item < area * vectors; item += blockDim.x) {
    const int place = item / vectors, channel = item % vectors * W;
    const int y = cell.y + place / side - reach, x = cell.x + place % side - reach;
    float v[W];
    clear(v);
    if (cell.level >= 0 && y >= 0 && y < height && x >= 0 && x < width)
      load(v, map + ((uint64_t)y * width + x) * maps.channels + channel);
    store(patch + place * maps.channels + channel, v);
  }
}

template <int W, int S>
DEVICE void scatter(const PatchGradients& of, const Pyramid& maps) {
  SHARED(int, ranks, 32);
  SHARED(int, rows, TILE_BLOCK);
  SHARED(int, ys, TILE_BLOCK);
  SHARED(int, xs, TILE_BLOCK);
  const Tile tile = tile_of(maps);
  const int channel = (blockIdx.y * TILE_VECTORS + threadIdx.x % TILE_VECTORS) * W;
  float sum[TILE_PIXELS][W];
  for (int j = 0; j < TILE_PIXELS; j++) clear(sum[j]);
  const PatchScratch shared{ranks, rows, ys, xs};
  add_patches<W, S>(of, maps, tile, channel, shared, sum);
  store_pixels<W>(maps, tile, channel, sum);
}

#define GATHER_PATCHES(suffix, W)                                                         \
  KERNEL(256)                                                                             \
  gather_patches_##suffix(Pyramid maps, const int* RESTRICT idx, real* RESTRICT patches,  \
                          int per_image, int anchors_per_cell, int reach) {               \
    gather<W>(maps, idx, patches, per_image, anchors_per_cell, reach);                    \
  }
GATHER_PATCHES(f16x8, 8)
GATHER_PATCHES(f16, 1)

#define GATHER_PATCHES_GRAD(suffix, W, S)                                                    \
  KERNEL(256)                                                                                \
  gather_patches_grad_##suffix(PatchGradients of, Pyramid maps) { scatter<W, S>(of, maps); }
GATHER_PATCHES_GRAD(f16x8, 8, 3)
GATHER_PATCHES_GRAD(f16, 1, 3)
GATHER_PATCHES_GRAD(5x5_f16x8, 8, 5)
GATHER_PATCHES_GRAD(5x5_f16, 1, 5)
