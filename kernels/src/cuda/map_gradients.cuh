// Terms of the gradient of a pyramid's maps, added tile by tile in registers: the gradients of RoIs
// (RoIAlign) and of patches. A thread owns four adjacent pixels of a vector of channels; every sum
// is in row order, in fp32.
#pragma once
#include "roi.cuh"
#include "vector.cuh"

// ---------------------------------------------------------------- RoIs
constexpr int BATCH = TILE_BLOCK / 32;  // RoIs whose weights are in shared memory, one per warp
constexpr int LINES = 2 * TILE;         // rows, then columns of a tile

// Gradients g [M, pooled, pooled, C] of RoIs [M, 4], listed by image and level: each RoI's row, and
// the map's rows and columns that it reaches.
struct RoiGradients {
  const real* g;
  const float4* rois;
  const int4* reaches;
  const int *starts, *lens;
  RoiGrid grid;
  int levels;   // the first maps of the pyramid
  float scale;  // of g
};
static_assert(sizeof(RoiGradients) == 64, "the launches build it");

// Shared memory of add_rois, including LINES * pooled * BATCH weights.
struct RoiScratch {
  int *ranks, *hits;  // [32], [TILE_BLOCK]
  unsigned (*sets)[LINES];
  float* weights;
};

DEVICE bool overlaps(int reached, int first) {
  return (reached >> 16) < first + TILE && (reached & 0xffff) >= first;
}

// Weight of a feature row (or column) in a bin.
DEVICE float weight_of(const RoiAxis& axis, int bin, int row) {
  const float weight = 1.0f / (float)axis.samples;
  float sum = 0.0f;
  for (int i = 0; i < axis.samples; i++) {
    const RoiSample sample = roi_sample(axis, bin, i);
    if (!sample.inside) continue;
    if (sample.low == row) sum += (1.0f - sample.fraction) * weight;
    if (sample.low + 1 == row) sum += sample.fraction * weight;
  }
  return sum;
}

// A warp writes the weights [LINES, pooled] of a RoI in a tile, with the weights of rows multiplied
// by `scale`, and for each line the set of bins with a nonzero weight. Its lanes handle the bins of
// as many lines as fit.
DEVICE void weigh(const RoiAxes& axes, const Tile& tile, int bins, float scale, float* weights,
                  unsigned* sets) {
  const int lane = threadIdx.x % 32, group = bins <= 8 ? 8 : bins <= 16 ? 16 : 32;
  const int bin = lane % group;
  for (int base = 0; base < LINES; base += 32 / group) {
    const int line = base + lane / group;
    const bool vertical = line < TILE;
    const int at = vertical ? tile.y + line : tile.x + line - TILE;
    const float weight = bin < bins ? weight_of(pick(axes, vertical), bin, at) : 0.0f;
    const unsigned all = __ballot_sync(ALL_LANES, weight != 0.0f) >> (lane - bin);
    if (bin == 0) sets[line] = group == 32 ? all : all & ((1u << group) - 1);
    if (bin < bins) weights[line * bins + bin] = vertical ? weight * scale : weight;
  }
}

// Adds a RoI's gradient to this thread's pixels.
template <int W>
DEVICE void add_roi(const real* g, const float* weights, const unsigned* sets, const Tile& tile,
                    int bins, int channels, float (&sum)[TILE_PIXELS][W]) {
  const float* row_weights = weights + tile.row * bins;
  const float* column_weights = weights + (TILE + tile.column) * bins;
  unsigned columns = 0;
  for (int j = 0; j < TILE_PIXELS; j++) columns |= sets[TILE + tile.column + j];
  for (unsigned rows = sets[tile.row]; rows != 0; rows &= rows - 1) {
    const int y = __ffs((int)rows) - 1;
    const float row_weight = row_weights[y];
    for (unsigned rest = columns; rest != 0; rest &= rest - 1) {
      const int x = __ffs((int)rest) - 1;
      float v[W];
      load(v, g + (uint64_t)(y * bins + x) * channels);
      for (int j = 0; j < TILE_PIXELS; j++) {
        const float weight = row_weight * column_weights[j * bins + x];
        // An overflowed gradient affects only the pixels that it belongs to.
        if (weight == 0.0f) continue;
        for (int i = 0; i < W; i++) sum[j][i] = __fmaf_rn(weight, v[i], sum[j][i]);
      }
    }
  }
}

// Adds the RoIs that reach the tile. Called by all threads of the block.
template <int W>
DEVICE void add_rois(const RoiGradients& of, const Pyramid& maps, const Tile& tile, int channel,
                     const RoiScratch& shared, float (&sum)[TILE_PIXELS][W]) {
  if (tile.level >= of.levels) return;  // the whole block
  const int bins = of.grid.pooled, warp = threadIdx.x / 32;
  const int key = tile.image * of.levels + tile.level;
  const int4* list = of.reaches + of.starts[key];
  const int len = of.lens[key];
  for (int base = 0; base < len; base += TILE_BLOCK) {
    const int place = base + threadIdx.x;
    const int4 entry = place < len ? list[place] : make_int4(0, 1 << 16, 1 << 16, 0);
    const bool hit = place < len && overlaps(entry.y, tile.y) && overlaps(entry.z, tile.x);
    const Rank rank = rank_in_block(hit, shared.ranks);
    if (hit) shared.hits[rank.before] = entry.x;
    __syncthreads();
    for (int batch = 0; batch < rank.all; batch += BATCH) {
      if (batch + warp < rank.all) {
        const float4 roi = of.rois[shared.hits[batch + warp]];
        const float scale = maps.scale[tile.level];
        const RoiAxes axes = roi_axes(roi, scale, tile.height, tile.width, of.grid);
        weigh(axes, tile, bins, of.scale, shared.weights + warp * LINES * bins, shared.sets[warp]);
      }
      __syncthreads();
      for (int i = 0; i < min(BATCH, rank.all - batch) && channel < maps.channels; i++) {
        const uint64_t row = shared.hits[batch + i];
        const real* g = of.g + row * bins * bins * maps.channels + channel;
        add_roi<W>(g, shared.weights + i * LINES * bins, shared.sets[i], tile, bins, maps.channels,
                   sum);
      }
      __syncthreads();
    }
  }
}

// ---------------------------------------------------------------- patches
// A cell of a map.
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

// Gradients g [N * per_image, S, S, C] of the patches at anchors idx [N, per_image]; -1: none.
struct PatchGradients {
  const real* g;
  const int* idx;
  int per_image, anchors_per_cell;
};
static_assert(sizeof(PatchGradients) == 24, "the launches build it");

// Shared memory of add_patches: [32], and [TILE_BLOCK] each.
struct PatchScratch {
  int *ranks, *rows, *ys, *xs;
};

// Adds the patches, of side S, that reach the tile. Called by all threads of the block.
template <int W, int S>
DEVICE void add_patches(const PatchGradients& of, const Pyramid& maps, const Tile& tile,
                        int channel, const PatchScratch& shared, float (&sum)[TILE_PIXELS][W]) {
  constexpr int REACH = S / 2;
  int first_cell = 0;
  for (int l = 0; l < tile.level; l++) first_cell += maps.height[l] * maps.width[l];
  for (int base = 0; base < of.per_image; base += TILE_BLOCK) {
    const int slot = base + threadIdx.x, row = tile.image * of.per_image + slot;
    // Divides by the map's width only for anchors in or around the rows of the tile.
    const int anchor = slot < of.per_image ? of.idx[row] : -1;
    const int cell = anchor < 0 ? -1 : anchor / of.anchors_per_cell - first_cell;
    bool hit = cell >= max((tile.y - REACH) * tile.width, 0) &&
               cell < min(tile.y + TILE + REACH, tile.height) * tile.width;
    const int y = hit ? cell / tile.width : 0, x = hit ? cell % tile.width : 0;
    hit = hit && x >= tile.x - REACH && x < tile.x + TILE + REACH;
    const Rank rank = rank_in_block(hit, shared.ranks);
    if (hit) {
      shared.rows[rank.before] = row;
      shared.ys[rank.before] = y;
      shared.xs[rank.before] = x;
    }
    __syncthreads();
    for (int i = 0; i < rank.all && channel < maps.channels; i++) {
      const int r = tile.y + tile.row - shared.ys[i] + REACH;
      if (r < 0 || r >= S) continue;
      const uint64_t cell_idx = (uint64_t)shared.rows[i] * (S * S) + S * r;
      const real* line = of.g + cell_idx * maps.channels + channel;
      for (int j = 0; j < TILE_PIXELS; j++) {
        const int c = tile.x + tile.column + j - shared.xs[i] + REACH;
        if (c < 0 || c >= S) continue;
        float v[W];
        load(v, line + c * maps.channels);
        for (int k = 0; k < W; k++) sum[j][k] += v[k];
      }
    }
    __syncthreads();
  }
}

// ---------------------------------------------------------------- maps
// Writes this thread's pixels to their map.
template <int W>
DEVICE void store_pixels(const Pyramid& maps, const Tile& tile, int channel,
                         const float (&sum)[TILE_PIXELS][W]) {
  const int y = tile.y + tile.row;
  if (channel >= maps.channels || y >= tile.height) return;
  real* line = maps.map[tile.level] +
               ((uint64_t)tile.image * tile.height + y) * tile.width * maps.channels + channel;
  for (int j = 0; j < TILE_PIXELS; j++) {
    const int x = tile.x + tile.column + j;
    if (x < tile.width) store(line + (uint64_t)x * maps.channels, sum[j]);
  }
}
