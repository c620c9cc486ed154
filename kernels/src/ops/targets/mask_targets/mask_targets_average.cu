// Mask targets by torchvision's rule: the object rasterised at source size, flipped, resized
// nearest to network size, and averaged by RoIAlign.
//
//   boxes      [M, 4]           float  in   RoIs
//   image_idx  [M]              int    in   image of the RoI
//   matched    [M]              int    in   object of the RoI within the image
//   count      [1]              int    in   RoIs in use
//   targets    [M, side, side]  float  out  fraction of the pixel that the object covers
//
// Launch: a block of 256 threads per RoI, dynamic shared memory for side x 32 floats.
// Cost: two bit reads per sample of a row bin and column: 0.1 ms for a RoI of an entire image, in
// proportion to the area; compute-bound.
// Numerics: fp32 in a fixed order; the bitmap equals the CPU's, sums differ only in order.
// Edge cases: rows past the count are 0; samples beyond -1 or the image have weight 0, but are
// counted in the mean.
//
// The objects are in `Segments` of segments.cuh. Matches torchvision's project_masks_on_boxes
// (adaptive grid, not aligned, scale 1), and the CPU reference of mask_targets by RoiAlignBitmap.
//
// The bitmap is rasterised strip by strip, 32 source columns at a time over the rows that the RoI
// reads, and stays in shared memory: a strip's columns are averaged into row bins (a warp per bin,
// a lane per column), and these into the targets (a thread per pixel).
#include "segments.cuh"

constexpr int MAX_GRID = 4096;  // as in roi_align's taps: only a non-finite RoI reaches it

// Samples along an axis of a RoI in the network's image, and the transform of this axis from the
// source.
struct Samples {
  float start, bin_size, weight;
  int grid;
  Axis axis;
};

DEVICE Samples samples_of(float start, float end, int side, const Axis& axis) {
  const float bin_size = fmaxf(end - start, 1.0f) / (float)side;
  const int grid = (int)fminf(ceilf(bin_size), (float)MAX_GRID);
  return {start, bin_size, 1.0f / (float)grid, grid, axis};
}

// Two neighbouring source pixels and their weights in a sample; 0 for a sample out of range.
struct Tap {
  int low, high;
  float low_weight, high_weight;
};

DEVICE Tap tap_of(const Samples& s, int bin, int sample) {
  const float within = ((float)sample + 0.5f) * s.bin_size / (float)s.grid;
  const float at = s.start + (float)bin * s.bin_size + within;
  const bool outside = at < -1.0f || at > (float)s.axis.network;
  const int last = s.axis.network - 1, low = pixel_at(at, last);
  const float fraction = low == last ? 0.0f : fmaxf(at, 0.0f) - (float)low;
  return {s.axis.nearest(low), s.axis.nearest(min(low + 1, last)),
          outside ? 0.0f : (1.0f - fraction) * s.weight, outside ? 0.0f : fraction * s.weight};
}

// First and last source pixel that bins `from` to `to` read; the range is conservative.
DEVICE int2 source_range(const Samples& s, int from, int to) {
  const Tap a = tap_of(s, from, 0), b = tap_of(s, to, s.grid - 1);
  // Positions ascend unless the RoI is non-finite.
  if (!(s.start + s.bin_size * (float)(to + 1) < 1e9f && s.start > -1e9f)) {
    return make_int2(0, s.axis.source - 1);
  }
  return make_int2(min(a.low, b.high), max(a.low, b.high));
}

// The sum over the bin's rows in this tile, for the lane's column. Called by a warp: each lane
// computes the taps of one sample and shares them by shuffles, since computing taps costs more than
// adding them.
DEVICE float row_bin(const unsigned* bits, Tile tile, const Samples& rows, int bin) {
  const int lane = threadIdx.x % 32;
  const auto bit = [=](int row) {
    return row >= tile.y && row < tile.y + TILE_ROWS && tile_bit(bits, tile, tile.x + lane, row);
  };
  float sum = 0.0f;
  for (int first = 0; first < rows.grid; first += 32) {
    const Tap own = tap_of(rows, bin, first + lane);
    const int samples = min(32, rows.grid - first);
    for (int i = 0; i < samples; i++) {
      const int low = __shfl_sync(ALL_LANES, own.low, i);
      const int high = __shfl_sync(ALL_LANES, own.high, i);
      const float low_weight = __shfl_sync(ALL_LANES, own.low_weight, i);
      const float high_weight = __shfl_sync(ALL_LANES, own.high_weight, i);
      sum += (bit(low) ? low_weight : 0.0f) + (bit(high) ? high_weight : 0.0f);
    }
  }
  return sum;
}

// The sum over the bin's columns in this strip; `line` holds the row bin's sum for each column.
DEVICE float column_bin(const float* line, int first, const Samples& columns, int bin) {
  float sum = 0.0f;
  const int2 range = source_range(columns, bin, bin);
  if (range.y < first || range.x >= first + TILE_COLUMNS) return sum;
  for (int sample = 0; sample < columns.grid; sample++) {
    const Tap tap = tap_of(columns, bin, sample);
    const int low = tap.low - first, high = tap.high - first;
    if (low >= 0 && low < TILE_COLUMNS) sum += tap.low_weight * line[low];
    if (high >= 0 && high < TILE_COLUMNS) sum += tap.high_weight * line[high];
  }
  return sum;
}

KERNEL(256)
mask_targets_average(MaskRois rois, Segments in, float* RESTRICT targets, int side) {
  SHARED(unsigned, bits, TILE_BITS);
  SHARED(unsigned, marks, TILE_BITS);
  SHARED(int64_t, scratch, 32);
  SHARED(Samples, axes, 2);
  DYNAMIC_SHARED(memory);
  float* lines = (float*)memory;  // [S, 32]
  const int row = blockIdx.x, pixels = side * side;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  float* target = targets + (int64_t)row * pixels;
  for (int i = threadIdx.x; i < pixels; i += blockDim.x) target[i] = 0.0f;
  Object object;
  if (!find_object(object, in, rois, row)) return;  // uniform over the block
  // In the source's orientation.
  const float4 roi = object.view->transposed ? transposed(rois.boxes[row]) : rois.boxes[row];
  // In shared memory: register pressure is high while a tile is rasterised.
  if (threadIdx.x == 0) {
    axes[0] = samples_of(roi.y, roi.w, side, object.view->y);
    axes[1] = samples_of(roi.x, roi.z, side, object.view->x);
  }
  __syncthreads();
  const Samples &rows = axes[0], &columns = axes[1];
  const int2 row_range = source_range(rows, 0, side - 1);
  const int2 column_range = source_range(columns, 0, side - 1);
  const Placement placement = {};
  const Canvas source = object.source();
  for (Tile tile = {column_range.x, 0}; tile.x <= column_range.y; tile.x += TILE_COLUMNS) {
    for (tile.y = row_range.x; tile.y <= row_range.y; tile.y += TILE_ROWS) {
      draw_object(bits, marks, scratch, tile, source, in, object, placement);
      for (int bin = warp; bin < side; bin += warps) {
        const float before = tile.y == row_range.x ? 0.0f : lines[bin * TILE_COLUMNS + lane];
        lines[bin * TILE_COLUMNS + lane] = before + row_bin(bits, tile, rows, bin);
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < pixels; i += blockDim.x) {
      const int row_bin = i / side, bin = i % side;
      // The target has the network's orientation.
      target[object.view->transposed ? bin * side + row_bin : i] +=
          column_bin(lines + row_bin * TILE_COLUMNS, tile.x, columns, bin);
    }
    // No barrier is needed: draw_object has barriers before the next strip overwrites `lines`.
  }
}
