// Labels the training candidates of the RoI heads; torchvision's add_gt_proposals and
// assign_targets_to_proposals.
//
//   proposals   [N, max_proposals, 4]  float  in   boxes of each image
//   anchor_idx  [N, max_proposals]     int    in   anchor of each proposal
//   counts      [N]                    int    in   proposals of each image
//   gts         [N, max_gts, 4]        float  in   ground truth
//   classes     [N, max_gts]           int    in   its classes
//   gt_counts   [N]                    int    in   ground truths of each image
//   num_images  [1]                    int    in   images in use
//   candidates  [N, capacity, 4]       float  out  proposals and ground truth
//   labels      [N, capacity]          int    out  class, 0 background, -1 ignored
//   matched     [N, capacity]          int    out  ground truth of each candidate
//   keys        [N, capacity]          int    out  random number key of the candidate
//   out_counts  [N]                    int    out  candidates of each image
//
// Launch: blocks of 256 over the rows of an image in x (at least one, for the count), images in y.
// Cost: 30 operations per pair of candidate and ground truth; 25M pairs at most (12 images, 2,100
// rows, 100 ground truths); compute-bound.
// Numerics: the CPU's operations in its order, so that labels are equal; the lowest ground truth
// wins a tie.
// Edge cases: counts are clamped to their capacity.
//
// The capacity is max_proposals + max_gts. A key is a proposal's anchor, -2 - g for ground truth g,
// -1 in the padding.
#include "boxes.cuh"

// Ground truths staged at a time.
constexpr int STAGE = 256;

DEVICE int rows_in_use(int count, int capacity) { return max(0, min(count, capacity)); }

KERNEL(256)
roi_candidates_f32(const Box* RESTRICT proposals, const int* RESTRICT anchor_idx,
                   const int* RESTRICT counts, const Box* RESTRICT gts, const int* RESTRICT classes,
                   const int* RESTRICT gt_counts, const int* RESTRICT num_images,
                   Box* RESTRICT candidates, int* RESTRICT labels, int* RESTRICT matched,
                   int* RESTRICT keys, int* RESTRICT out_counts, int max_proposals, int max_gts,
                   float fg_iou, float bg_iou, int plus_one) {
  SHARED(Box, gt_boxes, STAGE);
  SHARED(float, gt_areas, STAGE);
  const int n = blockIdx.y, rows = max_proposals + max_gts;
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const bool in_use = n < *num_images;
  const int own = in_use ? rows_in_use(counts[n], max_proposals) : 0;
  const int num_gts = in_use ? rows_in_use(gt_counts[n], max_gts) : 0;
  const Box* image_gts = gts + (uint64_t)n * max_gts;

  Box b = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  int key = -1;
  if (row < own) {
    b = proposals[(uint64_t)n * max_proposals + row];
    key = anchor_idx[(uint64_t)n * max_proposals + row];
  } else if (row < own + num_gts) {
    b = image_gts[row - own];
    key = -2 - (row - own);
  }

  const float area = box_area(b, plus_one);
  float best = -1.0f;
  int best_gt = 0;
  // No candidate of the block is in use, so there is nothing to match.
  const int first_row = blockIdx.x * blockDim.x;
  const int to_match = first_row < own + num_gts ? num_gts : 0;
  for (int first = 0; first < to_match; first += STAGE) {
    __syncthreads();
    const int staged = min(STAGE, to_match - first);
    if ((int)threadIdx.x < staged) {
      const Box gt = image_gts[first + threadIdx.x];
      gt_boxes[threadIdx.x] = gt;
      gt_areas[threadIdx.x] = box_area(gt, plus_one);
    }
    __syncthreads();
    for (int i = 0; i < staged; i++) {
      const float iou = box_iou(gt_boxes[i], gt_areas[i], b, area, plus_one);
      if (iou > best) {
        best = iou;
        best_gt = first + i;
      }
    }
  }

  if (row == 0) out_counts[n] = own + num_gts;
  if (row >= rows) return;
  int label = -1, match = 0;
  if (row < own + num_gts) {
    if (num_gts == 0 || best < bg_iou) {
      label = 0;
    } else if (!(best < fg_iou)) {
      label = classes[(uint64_t)n * max_gts + best_gt];
      match = best_gt;
    }
  }
  const uint64_t out = (uint64_t)n * rows + row;
  candidates[out] = b;
  labels[out] = label;
  matched[out] = match;
  keys[out] = key;
}
