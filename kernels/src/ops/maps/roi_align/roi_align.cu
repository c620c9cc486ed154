// RoIAlign over a feature pyramid; torchvision's roi_align and MultiScaleRoIAlign.
//
//   maps       [N, height, width, C]   real   in   feature map of each level
//   rois       [M, 4]                  float  in   x1, y1, x2, y2 in network pixels
//   image_idx  [M]                     int    in   image of the RoI
//   levels     [M]                     int    in   level that the RoI is pooled from
//   count      [1]                     int    in   RoIs in use
//   y          [M, pooled, pooled, C]  real   out  0 in rows past the count or without an image
//
// Launch: a block of 256 per row; a warp processes 256 channels of a bin.
// Cost: about 9 neighbours per bin, 2 * C bytes each, mostly cached; bound by L2 and latency (512
// RoIs of 12 images, 7x7: 0.6 GB).
// Numerics: a bin's samples are merged into weights per feature row and column, then fp32 sums in
// that order, rounded once.
// Edge cases: non-finite coordinates give arbitrary map values or 0, never an invalid access.
//
// Weights and their order are the same as in taps.rs.
#include "platform.cuh"
#include "roi.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

struct RoiTap {
  int row;
  float weight;
};

// Writes the taps of a bin, if `taps` is not null, and returns their number.
DEVICE int collect_taps(const RoiAxis& axis, int bin, RoiTap* taps, int capacity) {
  const float weight = 1.0f / (float)axis.samples;
  int count = 0, last = -1, before = -1;  // rows of the last two taps
  for (int i = 0; i < axis.samples; i++) {
    const RoiSample sample = roi_sample(axis, bin, i);
    if (!sample.inside) continue;
    for (int side = 0; side < 2; side++) {
      const float part = (side == 0 ? 1.0f - sample.fraction : sample.fraction) * weight;
      const int row = sample.low + side;
      if (part == 0.0f) continue;
      if (row == before || row == last) {
        if (taps != nullptr) taps[count - (row == before ? 2 : 1)].weight += part;
      } else if (count < capacity) {
        if (taps != nullptr) taps[count] = {row, part};
        count++;
        before = last;
        last = row;
      }
    }
  }
  return count;
}

// Taps of both axes in shared memory: bin b of axis a has count[a * P + b] taps from first[a * P +
// b] on. `capacity` taps per axis.
struct TapTable {
  RoiTap* taps;
  int *first, *count;
};

DEVICE TapTable tap_table(const RoiGrid& grid, int capacity, unsigned char* shared) {
  RoiTap* taps = (RoiTap*)shared;
  int* first = (int*)(taps + 2 * capacity);
  return {taps, first, first + 2 * grid.pooled};
}

// Called by all threads of the block; the table is complete on return.
DEVICE void fill_taps(const TapTable& table, const RoiAxes& axes, const RoiGrid& grid,
                      int capacity) {
  const int bins = grid.pooled;
  if (grid.sampling_ratio == 0) {
    // The number of samples, and so of taps, depends on the box.
    for (int i = threadIdx.x; i < 2 * bins; i += blockDim.x)
      table.count[i] = collect_taps(pick(axes, i < bins), i % bins, nullptr, capacity);
    __syncthreads();
  }
  for (int i = threadIdx.x; i < 2 * bins; i += blockDim.x) {
    const int axis = i / bins;
    int first = i % bins * 2 * grid.sampling_ratio;
    if (grid.sampling_ratio == 0) {
      for (int k = axis * bins; k < i; k++) first += table.count[k];
    }
    first = min(first, capacity);
    table.first[i] = axis * capacity + first;
    const int taps = collect_taps(pick(axes, axis == 0), i % bins,
                                  table.taps + axis * capacity + first, capacity - first);
    if (grid.sampling_ratio != 0) table.count[i] = taps;
  }
  __syncthreads();
}

template <int W>
DEVICE void align(const Pyramid& maps, const float4* rois, const int* image_idx, const int* levels,
                  const int* count, real* y, const RoiGrid& grid, int capacity) {
  DYNAMIC_SHARED(shared);
  const int row = blockIdx.x, image = image_idx[row], level = levels[row];
  const int bins = grid.pooled, vectors = maps.channels / W, items = bins * bins * vectors;
  real* out = y + (uint64_t)row * items * W;
  const bool used =
      row < *count && image >= 0 && image < maps.images && level >= 0 && level < maps.levels;
  const TapTable table = tap_table(grid, capacity, shared);
  if (!used) {
    float zeros[W];
    clear(zeros);
    for (int item = threadIdx.x; item < items; item += blockDim.x) store(out + item * W, zeros);
    return;
  }
  const int height = maps.height[level], width = maps.width[level];
  const float scale = maps.scale[level];
  const RoiAxes axes = roi_axes(rois[row], scale, height, width, grid);
  fill_taps(table, axes, grid, capacity);
  const real* map = maps.map[level] + (uint64_t)image * height * width * maps.channels;
  for (int item = threadIdx.x; item < items; item += blockDim.x) {
    const int bin = item / vectors, rows = bin / bins, columns = bins + bin % bins;
    const RoiTap* row_taps = table.taps + table.first[rows];
    const RoiTap* column_taps = table.taps + table.first[columns];
    const int row_count = table.count[rows], column_count = table.count[columns];
    const real* from = map + item % vectors * W;
    float sum[W], v[W];
    clear(sum);
    for (int r = 0; r < row_count; r++) {
      const RoiTap row_tap = row_taps[r];
      const real* line = from + (uint64_t)row_tap.row * width * maps.channels;
      for (int c = 0; c < column_count; c++) {
        const RoiTap column_tap = column_taps[c];
        const float weight = row_tap.weight * column_tap.weight;
        load(v, line + (uint64_t)column_tap.row * maps.channels);
        for (int i = 0; i < W; i++) sum[i] = __fmaf_rn(weight, v[i], sum[i]);
      }
    }
    store(out + (uint64_t)item * W, sum);
  }
}

KERNEL(256)
roi_align_f16x8(Pyramid maps, const float4* RESTRICT rois, const int* RESTRICT image_idx,
                const int* RESTRICT levels, const int* RESTRICT count, real* RESTRICT y,
                RoiGrid grid, int capacity) {
  align<8>(maps, rois, image_idx, levels, count, y, grid, capacity);
}

KERNEL(256)
roi_align_f16(Pyramid maps, const float4* RESTRICT rois, const int* RESTRICT image_idx,
              const int* RESTRICT levels, const int* RESTRICT count, real* RESTRICT y, RoiGrid grid,
              int capacity) {
  align<1>(maps, rois, image_idx, levels, count, y, grid, capacity);
}
