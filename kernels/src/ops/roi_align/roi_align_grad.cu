// Gradient of RoIAlign by the feature maps, without atomics: each tile of each map adds the RoIs
// that reach it, in registers.
//
//   g             [M, pooled, pooled, C]  half   in       gradient of the pooled values
//   rois          [M, 4]                  float  in       x1, y1, x2, y2 in network pixels
//   image_idx     [M]                     int    in       image of the RoI
//   levels        [M]                     int    in       level that the RoI is pooled from
//   count         [1]                     int    in       RoIs in use
//   reaches       [M, 4]                  int    scratch  what each RoI reaches, in lists
//   starts, lens  [N * levels]            int    scratch  where a list begins, and its RoIs
//   maps          [N, height, width, C]   half   out      gradient of each level's map
//
// Launch: roi_align_grad_lists: a block of 1,024 per image and level; roi_align_grad_tiles: 256
// threads per 8x8 tile of a map and 16 vectors of 8 channels (x8), or 16 channels.
// Cost: the maps written once (12 images of 800x1344: 0.55 GB), about 5 G products at 512 RoIs an
// image, 7x7; memory-bound where tiles are empty, else latency.
// Numerics: fp32 in the order RoI, bin row, bin column, rounded once; deterministic.
// Edges: at most 32 bins a side; coordinates that are not finite reach whole maps.
//
// The first kernel lists the RoIs of its image and level in order. In the second a thread owns four
// neighbouring pixels of a vector, and its warps make the weights of 8 RoIs at a time.
#include "platform.cuh"
#include "roi.cuh"
#include "vector.cuh"

constexpr int LIST_BLOCK = 1024;
constexpr int BATCH = TILE_BLOCK / 32;  // RoIs whose weights are in shared memory, one a warp
constexpr int LINES = 2 * TILE;         // rows, then columns of a tile

// First and last feature row (or column) that a RoI may reach, in the two halves of an int; a
// little too wide, as only speed depends on it. None: last < first.
DEVICE int reach(const RoiAxis& axis, int bins) {
  const float end = axis.start + (float)bins * axis.bin_size;
  const float low = floorf(min(axis.start, end)) - 1.0f;
  const float high = floorf(max(axis.start, end)) + 2.0f;
  const float border = (float)(axis.extent - 1);
  // Comparisons that a value that is no number fails; min and max then take the border.
  if (high < -1.0f || low > border + 2.0f) return 1 << 16;
  const int first = (int)min(max(low, 0.0f), border), last = (int)max(min(high, border), 0.0f);
  return first << 16 | last;
}

DEVICE bool overlaps(int reached, int first) {
  return (reached >> 16) < first + TILE && (reached & 0xffff) >= first;
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
  // A list begins where those of all smaller keys would end.
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
EXPORT(roi_align_grad_lists)

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

// A warp writes the weights [LINES, pooled] of a RoI in a tile, and for each line the set of bins
// that weigh something. Its lanes have the bins of as many lines as fit.
DEVICE void weigh(const RoiAxes& axes, const Tile& tile, int bins, float* weights, unsigned* sets) {
  const int lane = threadIdx.x % 32, group = bins <= 8 ? 8 : bins <= 16 ? 16 : 32;
  const int bin = lane % group;
  for (int base = 0; base < LINES; base += 32 / group) {
    const int line = base + lane / group;
    const bool vertical = line < TILE;
    const int at = vertical ? tile.y + line : tile.x + line - TILE;
    const float weight = bin < bins ? weight_of(pick(axes, vertical), bin, at) : 0.0f;
    const unsigned all = __ballot_sync(ALL_LANES, weight != 0.0f) >> (lane - bin);
    if (bin == 0) sets[line] = group == 32 ? all : all & ((1u << group) - 1);
    if (bin < bins) weights[line * bins + bin] = weight;
  }
}

// Adds a RoI's gradient to this thread's pixels.
template <int W>
DEVICE void add_roi(const half* g, const float* weights, const unsigned* sets, const Tile& tile,
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
        // A gradient that overflowed stays with the pixels that it belongs to.
        if (weight == 0.0f) continue;
        for (int i = 0; i < W; i++) sum[j][i] = __fmaf_rn(weight, v[i], sum[j][i]);
      }
    }
  }
}

template <int W>
DEVICE void assemble(const half* g, const float4* rois, const int4* reaches, const int* starts,
                     const int* lens, const Pyramid& maps, const RoiGrid& grid) {
  SHARED(int, scratch, 32);
  SHARED(int, hits, TILE_BLOCK);
  SHARED_2D(unsigned, sets, BATCH, LINES);
  DYNAMIC_SHARED(shared);
  float* weights = (float*)shared;
  const Tile tile = tile_of(maps);
  const int bins = grid.pooled, warp = threadIdx.x / 32,
            key = tile.image * maps.levels + tile.level;
  const int channel = (blockIdx.y * TILE_VECTORS + threadIdx.x % TILE_VECTORS) * W;
  const bool active = channel < maps.channels;
  const int4* list = reaches + starts[key];
  const int len = lens[key];
  float sum[TILE_PIXELS][W];
  for (int j = 0; j < TILE_PIXELS; j++) clear(sum[j]);

  for (int base = 0; base < len; base += TILE_BLOCK) {
    const int place = base + threadIdx.x;
    const int4 entry = place < len ? list[place] : make_int4(0, 1 << 16, 1 << 16, 0);
    const bool hit = place < len && overlaps(entry.y, tile.y) && overlaps(entry.z, tile.x);
    const Rank rank = rank_in_block(hit, scratch);
    if (hit) hits[rank.before] = entry.x;
    __syncthreads();
    for (int batch = 0; batch < rank.all; batch += BATCH) {
      if (batch + warp < rank.all) {
        const float4 roi = rois[hits[batch + warp]];
        const float scale = maps.scale[tile.level];
        const RoiAxes axes = roi_axes(roi, scale, tile.height, tile.width, grid);
        weigh(axes, tile, bins, weights + warp * LINES * bins, sets[warp]);
      }
      __syncthreads();
      for (int i = 0; i < min(BATCH, rank.all - batch) && active; i++) {
        const half* of = g + (uint64_t)hits[batch + i] * bins * bins * maps.channels + channel;
        add_roi<W>(of, weights + i * LINES * bins, sets[i], tile, bins, maps.channels, sum);
      }
      __syncthreads();
    }
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

KERNEL(256)
roi_align_grad_tiles_f16x8(const half* RESTRICT g, const float4* RESTRICT rois,
                           const int4* RESTRICT reaches, const int* RESTRICT starts,
                           const int* RESTRICT lens, Pyramid maps, RoiGrid grid) {
  assemble<8>(g, rois, reaches, starts, lens, maps, grid);
}
EXPORT(roi_align_grad_tiles_f16x8)

KERNEL(256)
roi_align_grad_tiles_f16(const half* RESTRICT g, const float4* RESTRICT rois,
                         const int4* RESTRICT reaches, const int* RESTRICT starts,
                         const int* RESTRICT lens, Pyramid maps, RoiGrid grid) {
  assemble<1>(g, rois, reaches, starts, lens, maps, grid);
}
EXPORT(roi_align_grad_tiles_f16)
