// The feature level that each RoI is pooled from; torchvision's LevelMapper, or detectron2's
// assign_boxes_to_levels (Lin et al., FPN, equation 1).
//
//   rois       [M, 4]  float  in   boxes in network pixels
//   image_idx  [M]     int    in   image of the RoI, below 0 in padding rows
//   levels     [M]     int    out  level - min_level; 0 in padding rows
//
// Launch: a thread per RoI, blocks of 256.
// Cost: 24 bytes per RoI; latency-bound.
// Numerics: fp32 in torchvision's order; sqrt and division rounded to nearest, log2f within 1 ulp
// and exact at powers of two, the level boundaries.
// Edge cases: a zero-area RoI gets the finest level, a NaN area the level nearest to 0.
#include "boxes.cuh"

KERNEL(256)
roi_levels_f32(const Box* RESTRICT rois, const int* RESTRICT image_idx, int* RESTRICT levels,
               uint64_t len, int min_level, int max_level, float canonical_size,
               int canonical_level, int plus_one, float eps_in_log, float eps_after_log) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= len) return;
  int level = 0;
  if (image_idx[i] >= 0) {
    const float side = sqrtf(box_area(rois[i], plus_one));
    const float share = side / canonical_size + eps_in_log;
    const float exact = floorf((float)canonical_level + log2f(share) + eps_after_log);
    // Clamped to the levels before the cast: infinity does not fit an int.
    const float held = fminf(fmaxf(exact, (float)min_level), (float)max_level);
    const int whole = exact != exact ? max(min(0, max_level), min_level) : (int)held;
    level = whole - min_level;
  }
  levels[i] = level;
}
