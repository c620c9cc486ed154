// Regression targets of sampled anchors or RoIs: deltas to the matched ground truth; torchvision's
// BoxCoder.encode.
//
//   boxes          [M, 4]     float  in   anchors or RoIs
//   image_idx      [M]        int    in   image of the row
//   matched        [M]        int    in   index of its ground truth
//   gt_boxes       [N, G, 4]  float  in   ground truth
//   labels         [M]        int    in   above 0: positive
//   targets        [M, 4]     float  out  deltas
//   matched_boxes  [M, 4]     float  out  the matched ground truth
//
// Launch: a thread per row, blocks of 256.
// Cost: 60 bytes per row, 6,144 rows at the training shape; latency-bound.
// Numerics: fp32 in the CPU's order; logf is the device's.
// Edge cases: rows with label <= 0 or an invalid ground-truth index are 0; a non-positive side
// gives inf or NaN.
#include "boxes.cuh"

KERNEL(256)
encode_boxes(const Box* RESTRICT boxes, const int* RESTRICT image_idx, const int* RESTRICT matched,
             const Box* RESTRICT gt_boxes, const int* RESTRICT labels, float4* RESTRICT targets,
             Box* RESTRICT matched_boxes, BoxWeights weights, int plus_one, int num_rows,
             int num_images, int num_gts) {
  const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= num_rows) return;
  const int n = image_idx[row], gt = matched[row];
  float4 target = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  Box gt_box = target;
  if (labels[row] > 0 && n >= 0 && n < num_images && gt >= 0 && gt < num_gts) {
    gt_box = gt_boxes[(int64_t)n * num_gts + gt];
    target = box_encode(boxes[row], gt_box, weights, plus_one);
  }
  targets[row] = target;
  matched_boxes[row] = gt_box;
}
