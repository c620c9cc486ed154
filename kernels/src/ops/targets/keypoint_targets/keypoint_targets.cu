// Finds the keypoint map cell that is the target of each keypoint of each RoI; keypoints_to_heatmap
// of torchvision and detectron2.
//
//   mask_rois     [M, 4]        float  in   boxes in network pixels
//   image_idx     [M]           int    in   image of the row
//   matched       [M]           int    in   object of the image
//   count         [1]           int    in   rows in use
//   keypoints     [N, G, K, 3]  float  in   x, y in network pixels; a value above 0 if labelled
//   cells         [M * K]       int    out  cell, or -1
//   image_of_row  [M * K]       int    out  image, or -1
//
// Launch: a thread per keypoint of a row, blocks of 256.
// Cost: 20 bytes per keypoint, 17,408 of them at 1,024 positives; latency-bound.
// Numerics: f64, the CPU's operations in its order.
// Edge cases: rows past the count, or without an image or an object, are -1.
#include "boxes.cuh"

// The cell along an axis, -1 outside of the RoI.
DEVICE int keypoint_cell(float at, float low, float high, int side) {
  if (at == high) return side - 1;
  const double length = (double)high - (double)low;
  const double cell = ((double)at - (double)low) * ((double)side / length);
  return cell >= 0.0 && cell < (double)side ? (int)cell : -1;
}

KERNEL(256)
keypoint_targets(const Box* RESTRICT mask_rois, const int* RESTRICT image_idx,
                 const int* RESTRICT matched, const int* RESTRICT count,
                 const float* RESTRICT keypoints, int* RESTRICT cells, int* RESTRICT image_of_row,
                 int num_rows, int side, int num_images, int num_objects, int per_object) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (uint64_t)num_rows * per_object) return;
  const int row = (int)(i / per_object), k = (int)(i % per_object);
  int image = row < *count ? image_idx[row] : -1;
  if (image < 0 || image >= num_images) image = -1;
  const int object = matched[row];
  int found = -1;
  if (image >= 0 && object >= 0 && object < num_objects) {
    const uint64_t at = ((uint64_t)image * num_objects + object) * per_object + k;
    const float* point = keypoints + 3 * at;
    const Box roi = mask_rois[row];
    const int column = keypoint_cell(point[0], roi.x, roi.z, side);
    const int line = keypoint_cell(point[1], roi.y, roi.w, side);
    if (point[2] > 0.0f && column >= 0 && line >= 0) found = line * side + column;
  }
  cells[i] = found;
  image_of_row[i] = image;
}
