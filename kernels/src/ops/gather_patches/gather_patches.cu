// Copies the 3x3 neighbourhoods of the cells of chosen anchors, and adds their gradients back to
// the maps.
//
// gather_patches:
//   maps     [N, height, width, C]   half  in   feature map of each level
//   idx      [N, per_image]          int   in   anchors in the order level, y, x, cell; -1 = none
//   patches  [N * per_image, 9 * C]  half  out  0 beyond the map and in rows without an anchor
//
// gather_patches_grad:
//   g     [N * per_image, 9 * C]  half  in   gradient of the patches
//   idx   [N, per_image]          int   in   as above
//   maps  [N, height, width, C]   half  out  gradient of each level's map
//
// Launch: a block of 256 per row; the gradient's per 8x8 tile of each map and 16 vectors of 8
// channels (x8), or 16 channels.
// Cost: 18 * C bytes twice per row; the gradient writes the maps once (12 images of 800x1344: 0.55
// GB); memory-bound.
// Numerics: exact copies; the gradient sums in fp32 in the order of the rows.
// Edges: anchors beyond the maps count as none.
#include "platform.cuh"
#include "roi.cuh"
#include "vector.cuh"

struct Cell {
  int level, y, x;  // level -1: none
};

DEVICE Cell cell_of(const Pyramid& maps, int anchor, int anchors_per_cell) {
  int rest = anchor < 0 ? -1 : anchor / anchors_per_cell;
  for (int level = 0; level < maps.levels && rest >= 0; level++) {
    const int width = maps.width[level], cells = maps.height[level] * width;
    if (rest < cells) return {level, rest / width, rest % width};
    rest -= cells;
  }
  return {-1, 0, 0};
}

template <int W>
DEVICE void gather(const Pyramid& maps, const int* idx, half* patches, int per_image,
                   int anchors_per_cell) {
  const int row = blockIdx.x, image = row / per_image, vectors = maps.channels / W;
  const Cell cell = cell_of(maps, idx[row], anchors_per_cell);
  const int level = max(cell.level, 0), height = maps.height[level], width = maps.width[level];
  const half* map = maps.map[level] + (uint64_t)image * height * width * maps.channels;
  half* patch = patches + (uint64_t)row * 9 * maps.channels;
  for (int item = threadIdx.x; item < 9 * vectors; item += blockDim.x) {
    const int place = item / vectors, channel = item % vectors * W;
    const int y = cell.y + place / 3 - 1, x = cell.x + place % 3 - 1;
    float v[W];
    clear(v);
    if (cell.level >= 0 && y >= 0 && y < height && x >= 0 && x < width)
      load(v, map + ((uint64_t)y * width + x) * maps.channels + channel);
    store(patch + place * maps.channels + channel, v);
  }
}

template <int W>
DEVICE void scatter(const half* g, const int* idx, const Pyramid& maps, int per_image,
                    int anchors_per_cell) {
  SHARED(int, scratch, 32);
  SHARED(int, hit_row, TILE_BLOCK);
  SHARED(int, hit_y, TILE_BLOCK);
  SHARED(int, hit_x, TILE_BLOCK);
  const Tile tile = tile_of(maps);
  const int channel = (blockIdx.y * TILE_VECTORS + threadIdx.x % TILE_VECTORS) * W;
  const bool active = channel < maps.channels;
  int first_cell = 0;
  for (int l = 0; l < tile.level; l++) first_cell += maps.height[l] * maps.width[l];
  float sum[TILE_PIXELS][W];
  for (int j = 0; j < TILE_PIXELS; j++) clear(sum[j]);

  for (int base = 0; base < per_image; base += TILE_BLOCK) {
    const int slot = base + threadIdx.x, row = tile.image * per_image + slot;
    // A division by the map's width only for anchors in the rows of the tile and around it.
    const int anchor = slot < per_image ? idx[row] : -1;
    const int cell = anchor < 0 ? -1 : anchor / anchors_per_cell - first_cell;
    bool hit = cell >= max((tile.y - 1) * tile.width, 0) &&
               cell < min(tile.y + TILE + 1, tile.height) * tile.width;
    const int y = hit ? cell / tile.width : 0, x = hit ? cell % tile.width : 0;
    hit = hit && x >= tile.x - 1 && x <= tile.x + TILE;
    const Rank rank = rank_in_block(hit, scratch);
    if (hit) {
      hit_row[rank.before] = row;
      hit_y[rank.before] = y;
      hit_x[rank.before] = x;
    }
    __syncthreads();
    for (int i = 0; i < rank.all && active; i++) {
      const int r = tile.y + tile.row - hit_y[i] + 1;
      if (r < 0 || r > 2) continue;
      const half* line = g + ((uint64_t)hit_row[i] * 9 + 3 * r) * maps.channels + channel;
      for (int j = 0; j < TILE_PIXELS; j++) {
        const int c = tile.x + tile.column + j - hit_x[i] + 1;
        if (c < 0 || c > 2) continue;
        float v[W];
        load(v, line + c * maps.channels);
        for (int k = 0; k < W; k++) sum[j][k] += v[k];
      }
    }
    __syncthreads();
  }

  const int y = tile.y + tile.row;
  if (!active || y >= tile.height) return;
  half* line = maps.map[tile.level] +
               ((uint64_t)tile.image * tile.height + y) * tile.width * maps.channels + channel;
  for (int j = 0; j < TILE_PIXELS; j++) {
    const int x = tile.x + tile.column + j;
    if (x < tile.width) store(line + (uint64_t)x * maps.channels, sum[j]);
  }
}

#define GATHER_PATCHES(suffix, W)                                                             \
  KERNEL(256)                                                                                 \
  gather_patches_##suffix(Pyramid maps, const int* RESTRICT idx, half* RESTRICT patches,      \
                          int per_image, int anchors_per_cell) {                              \
    gather<W>(maps, idx, patches, per_image, anchors_per_cell);                               \
  }                                                                                           \
  EXPORT(gather_patches_##suffix)                                                             \
  KERNEL(256)                                                                                 \
  gather_patches_grad_##suffix(const half* RESTRICT g, const int* RESTRICT idx, Pyramid maps, \
                               int per_image, int anchors_per_cell) {                         \
    scatter<W>(g, idx, maps, per_image, anchors_per_cell);                                    \
  }                                                                                           \
  EXPORT(gather_patches_grad_##suffix)
GATHER_PATCHES(f16x8, 8)
GATHER_PATCHES(f16, 1)
