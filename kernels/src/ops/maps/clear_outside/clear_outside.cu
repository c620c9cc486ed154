// Copies patches, with zeros at the cells outside the map of their anchor, like the zero padding of
// a convolution.
//
//   x    [N * per_image, side, side, C]  real  in   patches around the anchors' cells
//   idx  [N * per_image]                 int   in   anchors by level, y, x, cell; -1 = none
//   y    [N * per_image, side, side, C]  real  out  x, or 0
//
// Launch: a block of 256 per patch, a thread per vector of 8 channels (x8) or per channel.
// Cost: 4 * side * side * C bytes per patch, 14 MB for 3x3 patches of 256 channels at 12 images of
// 256 anchors; memory-bound.
// Numerics: exact copies.
// Edge cases: a patch without an anchor is 0, and so is one whose anchor is outside the maps.
#include "platform.cuh"
#include "map_gradients.cuh"

REALS(fp16, fp32)

template <int W>
DEVICE void clear_cells(const real* x, const int* idx, real* y, const Pyramid& maps,
                        int anchors_per_cell, int side) {
  const int vectors = maps.channels / W, reach = side / 2;
  const Cell cell = cell_of(maps, idx[blockIdx.x], anchors_per_cell);
  const int level = max(cell.level, 0), height = maps.height[level], width = maps.width[level];
  const uint64_t first = (uint64_t)blockIdx.x * side * side * maps.channels;
  for (int item = threadIdx.x; item < side * side * vectors; item += blockDim.x) {
    const int place = item / vectors;
    const int row = cell.y + place / side - reach, column = cell.x + place % side - reach;
    float v[W];
    clear(v);
    if (cell.level >= 0 && row >= 0 && row < height && column >= 0 && column < width)
      load(v, x + first + item * W);
    store(y + first + item * W, v);
  }
}

#define CLEAR_OUTSIDE(suffix, W)                                                             \
  KERNEL(256)                                                                                \
  clear_outside_##suffix(const real* RESTRICT x, const int* RESTRICT idx, real* RESTRICT y,  \
                         Pyramid maps, int anchors_per_cell, int side) {                     \
    clear_cells<W>(x, idx, y, maps, anchors_per_cell, side);                                 \
  }
CLEAR_OUTSIDE(f16x8, 8)
CLEAR_OUTSIDE(f16, 1)
