// The sampled anchors of a batch as one list of rows, with labels and matches. Matches
// gather_anchors on the CPU.
//
// Letters: N images, A anchors, B samples an image. Tensors: anchors [A, 4] f32, idx [N, B] i32,
// anchor_labels, anchor_matches [N, A] i32 (in); boxes [N*B, 4] f32, image_idx, labels, matched
// [N*B] i32 (out, overwritten). Launch: a thread a row. Cost: 56 bytes a row at random places,
// 3,072 rows at the training shape: latency. Numerics: copies. Edges: a row whose index is none of
// an anchor (-1) holds zeros, image -1, label -1, match 0.
#include "platform.cuh"

KERNEL(256)
gather_anchors(const float4* RESTRICT anchors, const int* RESTRICT idx,
               const int* RESTRICT anchor_labels, const int* RESTRICT anchor_matches,
               float4* RESTRICT boxes, int* RESTRICT image_idx, int* RESTRICT labels,
               int* RESTRICT matched, int num_rows, int batch, int num_anchors) {
  const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= num_rows) return;
  const int n = row / batch, i = idx[row];
  const bool found = i >= 0 && i < num_anchors;
  const int64_t at = (int64_t)n * num_anchors + i;
  boxes[row] = found ? anchors[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  image_idx[row] = found ? n : -1;
  labels[row] = found ? anchor_labels[at] : -1;
  matched[row] = found ? anchor_matches[at] : 0;
}
EXPORT(gather_anchors)
