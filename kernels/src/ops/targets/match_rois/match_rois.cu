// Labels of the RoIs of a later cascade stage, matched with the ground truth at the stage's IoU.
//
//   rois       [M, 4]           float  in   boxes
//   image_idx  [M]              int    in   image of the row
//   count      [1]              int    in   rows in use
//   gts        [N, max_gts, 4]  float  in   ground truth
//   classes    [N, max_gts]     int    in   its classes
//   gt_counts  [N]              int    in   ground truths of each image
//   labels     [M]              int    out  class, 0 background, -1 ignored
//   matched    [M]              int    out  ground truth of a foreground RoI, else 0
//
// Launch: a thread per row, blocks of 256.
// Cost: 30 operations per pair of RoI and ground truth of its image; 0.6M pairs at most (12 images,
// 512 RoIs, 100 ground truths), which neighbouring rows read from L1; latency-bound.
// Numerics: the CPU's operations in its order, so that labels are equal; the lowest ground truth
// wins a tie.
// Edge cases: rows past the count, without an image or with a non-positive side are ignored; counts
// are clamped to their capacity.
#include "boxes.cuh"

KERNEL(256)
match_rois_f32(const Box* RESTRICT rois, const int* RESTRICT image_idx, const int* RESTRICT count,
               const Box* RESTRICT gts, const int* RESTRICT classes, const int* RESTRICT gt_counts,
               int* RESTRICT labels, int* RESTRICT matched, float fg_iou, int plus_one,
               int num_rows, int num_images, int max_gts) {
  const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= num_rows) return;
  const int n = row < *count ? image_idx[row] : -1;
  int label = -1, match = 0;
  if (n >= 0 && n < num_images) {
    const Box b = rois[row];
    if (box_width(b, plus_one) > 0.0f && box_height(b, plus_one) > 0.0f) {
      const int num_gts = max(0, min(gt_counts[n], max_gts));
      const uint64_t first = (uint64_t)n * max_gts;
      const float area = box_area(b, plus_one);
      float best = -1.0f;
      int best_gt = 0;
      for (int i = 0; i < num_gts; i++) {
        const Box gt = gts[first + i];
        const float iou = box_iou(gt, box_area(gt, plus_one), b, area, plus_one);
        if (iou > best) {
          best = iou;
          best_gt = i;
        }
      }
      label = 0;
      if (num_gts > 0 && !(best < fg_iou)) {
        label = classes[first + best_gt];
        match = best_gt;
      }
    }
  }
  labels[row] = label;
  matched[row] = match;
}
