// The feature level that each RoI is pooled from. Matches torchvision's LevelMapper (Lin et al.,
// FPN, equation 1), in f32 and in its order of operations.
//
// Tensors: rois [M, 4] f32, image_idx [M] i32 (in), levels [M] i32 (out, overwritten; 0 in padding
// rows, whose image is below 0). Launch: a thread for each RoI. Cost: 24 bytes a RoI, bound by
// latency. Numerics: sqrt and division rounded to nearest; log2f within 1 ulp and exact at powers
// of two, where the levels meet. Edges: no area goes to the finest level, NaN to that nearest 0.
#include "boxes.cuh"

KERNEL(256)
roi_levels_f32(const Box* RESTRICT rois, const int* RESTRICT image_idx, int* RESTRICT levels,
               uint64_t len, int min_level, int max_level, float canonical_size,
               int canonical_level, int plus_one) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= len) return;
  int level = 0;
  if (image_idx[i] >= 0) {
    const float side = sqrtf(box_area(rois[i], plus_one));
    const float exact = floorf((float)canonical_level + log2f(side / canonical_size) + 1e-6f);
    // Held within the levels before the cast: infinity is no int.
    const float held = fminf(fmaxf(exact, (float)min_level), (float)max_level);
    const int whole = exact != exact ? max(min(0, max_level), min_level) : (int)held;
    level = whole - min_level;
  }
  levels[i] = level;
}
EXPORT(roi_levels_f32)
