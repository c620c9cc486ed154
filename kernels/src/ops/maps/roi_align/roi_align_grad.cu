// Gradient of RoIAlign with respect to the feature maps, without atomics: each tile of each map
// accumulates, in registers, the RoIs that overlap it.
//
//   g             [M, pooled, pooled, C]  real   in       gradient of the pooled values
//   rois          [M, 4]                  float  in       x1, y1, x2, y2 in network pixels
//   image_idx     [M]                     int    in       image of the RoI
//   levels        [M]                     int    in       level that the RoI is pooled from
//   count         [1]                     int    in       RoIs in use
//   reaches       [M, 4]                  int    scratch  feature range of a RoI, list after list
//   starts, lens  [N * levels]            int    scratch  start and number of RoIs of each list
//   maps          [N, height, width, C]   real   out      gradient of each level's map
//
// Launch: roi_align_grad_lists: a block of 1,024 per image and level; roi_align_grad_tiles: 256
// threads per 8x8 tile of a map and 16 vectors of 8 channels (x8), or 16 channels.
// Cost: the maps written once (12 images of 800x1344: 0.55 GB), about 5 G multiply-adds at 512 RoIs
// per image, 7x7; memory-bound where tiles are empty, else latency-bound.
// Numerics: fp32 in the order RoI, bin row, bin column, rounded once; deterministic.
// Edge cases: at most 32 bins per side; RoIs with non-finite coordinates extend over whole maps.
//
// The first kernel lists the RoIs of its image and level in order. In the second the warps of a
// tile compute the weights of 8 RoIs at a time.
#include "platform.cuh"
#include "map_gradients.cuh"

REALS(fp16, fp32)

constexpr int LIST_BLOCK = 1024;
// First and last feature row (or column) that a RoI may overlap, in the two halves of an int;
// slightly conservative, which affects only speed. If it overlaps none, last < first.
DEVICE int reach(const RoiAxis& axis, int bins) {
  const float end = axis.start + (float)bins * axis.bin_size;
  const float low = floorf(min(axis.start, end)) - 1.0f;
  const float high = floorf(max(axis.start, end)) + 2.0f;
  const float border = (float)(axis.extent - 1);
  // These comparisons are false for NaN; min and max then clamp to the border.
  if (high < -1.0f || low > border + 2.0f) return 1 << 16;
  const int first = (int)min(max(low, 0.0f), border), last = (int)max(min(high, border), 0.0f);
  return first << 16 | last;
}

KERNEL(1024)
roi_align_grad_lists(Pyramid maps, const float4* RESTRICT rois, const int* RESTRICT image_idx,
                     const int* RESTRICT levels, const int* RESTRICT count, int4* RESTRICT reaches,
                     int* RESTRICT starts, int* RESTRICT lens, RoiGrid grid, int capacity) {
  SHARED(int, scratch, 32);
  const int key = blockIdx.x, rows = min(max(*count, 0), capacity);
  const int level = key % maps.levels;
  const int height = maps.height[level], width = maps.width[level];
  const auto key_of = [&](int row) {
    if (row >= rows) return -1;
    const int image = image_idx[row], on = levels[row];
    const bool valid = image >= 0 && image < maps.images && on >= 0 && on < maps.levels;
    return valid ? image * maps.levels + on : -1;
  };
  // The list of an (image, level) key begins after all RoIs with smaller keys.
  int smaller = 0;
  for (int row = threadIdx.x; row < rows; row += LIST_BLOCK) {
    const int other = key_of(row);
    smaller += other >= 0 && other < key;
  }
  const int start = block_sum(smaller, scratch);
  int len = 0;
  for (int base = 0; base < rows; base += LIST_BLOCK) {
    const int row = base + threadIdx.x;
    const bool own = key_of(row) == key;
    const Rank rank = rank_in_block(own, scratch);
    if (own) {
      const float4 roi = rois[row];
      const float scale = maps.scale[level];
      const RoiAxes axes = roi_axes(roi, scale, height, width, grid);
      const int y = reach(axes.y, grid.pooled), x = reach(axes.x, grid.pooled);
      reaches[start + len + rank.before] = make_int4(row, y, x, 0);
    }
    len += rank.all;
  }
  if (threadIdx.x == 0) {
    starts[key] = start;
    lens[key] = len;
  }
}

template <int W>
DEVICE void assemble(const RoiGradients& of, const Pyramid& maps) {
  SHARED(int, ranks, 32);
  SHARED(int, hits, TILE_BLOCK);
  SHARED_2D(unsigned, sets, BATCH, LINES);
  DYNAMIC_SHARED(weights);
  const Tile tile = tile_of(maps);
  const int channel = (blockIdx.y * TILE_VECTORS + threadIdx.x % TILE_VECTORS) * W;
  float sum[TILE_PIXELS][W];
  for (int j = 0; j < TILE_PIXELS; j++) clear(sum[j]);
  const RoiScratch shared{ranks, hits, sets, (float*)weights};
  add_rois<W>(of, maps, tile, channel, shared, sum);
  store_pixels<W>(maps, tile, channel, sum);
}

KERNEL(256)
roi_align_grad_tiles_f16x8(RoiGradients of, Pyramid maps) { assemble<8>(of, maps); }

KERNEL_BLOCKS(256, 4)
roi_align_grad_tiles_f16(RoiGradients of, Pyramid maps) { assemble<1>(of, maps); }
