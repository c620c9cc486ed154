// Positions of boxes and patches on the maps of a pyramid: RoIAlign samples, tiles of the maps, and
// ordered lists.
#pragma once
#include "real.cuh"
#include "reduce.cuh"

constexpr int MAX_LEVELS = 8;  // maps of a pyramid

// Maps [N, height, width, C] of each level. `first_block` is each level's first block in launches
// with a block for each tile of each image of each map.
struct Pyramid {
  real* map[MAX_LEVELS];
  int height[MAX_LEVELS], width[MAX_LEVELS], first_block[MAX_LEVELS];
  float scale[MAX_LEVELS];  // feature pixels per network pixel
  int levels, images, channels, padding;
};
static_assert(sizeof(Pyramid) == 208, "as pyramid.rs lays it out");

// ---------------------------------------------------------------- samples of RoIAlign
// The division of RoIs into bins and samples. sampling_ratio 0: as many samples per side as the bin
// has pixels.
struct RoiGrid {
  int pooled, sampling_ratio, aligned;
};
static_assert(sizeof(RoiGrid) == 12, "as the launch lays it out");

constexpr float MAX_SAMPLES = 4096.0f;  // per bin side; as in taps.rs

// One axis of a RoI on a map: the same operations in the same order as taps.rs.
struct RoiAxis {
  float start, bin_size;
  int samples, extent;
};

DEVICE RoiAxis roi_axis(float low, float high, float scale, int extent, const RoiGrid& grid) {
  const float offset = grid.aligned ? 0.5f : 0.0f;
  const float start = low * scale - offset;
  float size = (high * scale - offset) - start;
  if (!grid.aligned) size = max(size, 1.0f);
  const float bin_size = size / (float)grid.pooled;
  int samples = grid.sampling_ratio;
  // A NaN size has no samples, like a negative one.
  if (samples == 0 && bin_size > 0.0f) samples = (int)min(ceilf(bin_size), MAX_SAMPLES);
  return {start, bin_size, samples, extent};
}

// Both axes. Not an array: an index known only at run time would put it in local memory.
struct RoiAxes {
  RoiAxis y, x;
};

DEVICE RoiAxes roi_axes(const float4& roi, float scale, int height, int width,
                        const RoiGrid& grid) {
  return {roi_axis(roi.y, roi.w, scale, height, grid), roi_axis(roi.x, roi.z, scale, width, grid)};
}

DEVICE RoiAxis pick(const RoiAxes& axes, bool y) {
  return {y ? axes.y.start : axes.x.start, y ? axes.y.bin_size : axes.x.bin_size,
          y ? axes.y.samples : axes.x.samples, y ? axes.y.extent : axes.x.extent};
}

// Bilinear weights of a sample: 1 - fraction for `low`, fraction for the next.
struct RoiSample {
  int low;
  float fraction;
  bool inside;
};

DEVICE RoiSample roi_sample(const RoiAxis& axis, int bin, int i) {
  const float within = ((float)i + 0.5f) * axis.bin_size / (float)axis.samples;
  float at = axis.start + (float)bin * axis.bin_size + within;
  if (at < -1.0f || at > (float)axis.extent || axis.extent == 0) return {0, 0.0f, false};
  at = max(at, 0.0f);
  const int low = min((int)at, axis.extent - 1);
  return {low, low == axis.extent - 1 ? 0.0f : at - (float)low, true};
}

// ---------------------------------------------------------------- tiles of maps
constexpr int TILE = 8;           // pixels per side
constexpr int TILE_BLOCK = 256;   // threads of a tile's block
constexpr int TILE_VECTORS = 16;  // vectors of channels that a tile's block owns
constexpr int TILE_PIXELS = TILE * TILE * TILE_VECTORS / TILE_BLOCK;  // per thread, adjacent

// The tile of a block, and this thread's part of it.
struct Tile {
  int level, image, height, width;  // of the map
  int y, x;                         // the tile's first row and column
  int row, column;                  // this thread's row and first column in the tile
};

DEVICE Tile tile_of(const Pyramid& maps) {
  const int block = blockIdx.x;
  int level = 0;
  while (level + 1 < maps.levels && block >= maps.first_block[level + 1]) level++;
  const int height = maps.height[level], width = maps.width[level];
  const int across = ceil_div(width, TILE), tiles = ceil_div(height, TILE) * across;
  const int local = block - maps.first_block[level];
  const int lane = threadIdx.x / TILE_VECTORS;
  return {level,
          local / tiles,
          height,
          width,
          local % tiles / across * TILE,
          local % tiles % across * TILE,
          lane / (TILE / TILE_PIXELS),
          lane % (TILE / TILE_PIXELS) * TILE_PIXELS};
}

// Number of threads with `keep`: before this one, and in the whole block, which has up to 32 full
// warps. `scratch` holds 32 ints and is free again when the function returns.
struct Rank {
  int before, all;
};

DEVICE Rank rank_in_block(bool keep, int* scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const unsigned kept = __ballot_sync(ALL_LANES, keep);
  if (lane == 0) scratch[warp] = __popc(kept);
  __syncthreads();
  Rank rank = {__popc(kept & ((1u << lane) - 1)), 0};
  for (int w = 0; w < warps; w++) {
    rank.before += w < warp ? scratch[w] : 0;
    rank.all += scratch[w];
  }
  __syncthreads();
  return rank;
}
