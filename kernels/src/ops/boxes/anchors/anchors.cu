// Anchors of every pyramid level: each cell anchor shifted to each position; torchvision's
// AnchorGenerator.grid_anchors.
//
//   anchors  [A, 4]  float  out  boxes in the order level, y, x, cell
//
// Launch: x = a thread per anchor of a part, in blocks of 256; y = parts.
// Cost: 16 bytes per anchor, 4.3 MB at 800x1344; memory-bound.
// Numerics: bit-identical to the CPU: same operations in the same order.
// Edge cases: a level with more than MAX_CELLS cell anchors is split into several parts.
#include "platform.cuh"

constexpr int MAX_CELLS = 64;
constexpr int MAX_PARTS = 8;

// A range of a level's cell anchors, from `cell` on, shifted to each position of the level.
struct Part {
  uint64_t first;  // output row of the first cell anchor at position 0
  int width;       // positions in a row of the map
  int positions;
  int pitch;  // anchors at a position, over all parts of the level
  int cell, num_cells;
  float stride_h, stride_w;
};
struct Parts {
  float4 cells[MAX_CELLS];
  Part parts[MAX_PARTS];
};
static_assert(sizeof(Parts) == 16 * MAX_CELLS + 40 * MAX_PARTS, "as the launch lays it out");

KERNEL(256)
anchors_f32(float4* RESTRICT anchors, const Parts all) {
  const Part part = all.parts[blockIdx.y];
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (uint64_t)part.positions * part.num_cells) return;
  const int position = (int)(i / part.num_cells), c = (int)(i % part.num_cells);
  const float dx = (float)(position % part.width) * part.stride_w;
  const float dy = (float)(position / part.width) * part.stride_h;
  const float4 cell = all.cells[part.cell + c];
  anchors[part.first + (uint64_t)position * part.pitch + c] =
      make_float4(cell.x + dx, cell.y + dy, cell.z + dx, cell.w + dy);
}
