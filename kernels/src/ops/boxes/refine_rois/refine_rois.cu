// RoIs of the next cascade stage, decoded from the previous stage's deltas and clipped.
//
//   rois       [M, 4]  float       in   boxes that the deltas start from
//   deltas     [M, 4]  real        in   deltas shared by all classes
//   image_idx  [M]     int         in   image of the row
//   count      [1]     int         in   rows in use
//   sizes      [N, 2]  int         in   height and width of the network's input
//   out        [M, 4]  float       out  decoded and clipped
//
// Launch: a thread per row, blocks of 256.
// Cost: 44 or 52 bytes per row, 6,144 rows at the training shape; latency-bound.
// Numerics: fp32, the CPU's operations in its order; expf is the device's.
// Edge cases: rows past the count, or without an image, are 0.
#include "boxes.cuh"
#include "real.cuh"

REALS(fp16, fp32)

KERNEL(256)
refine_rois_f16(const Box* RESTRICT rois, const real* RESTRICT deltas,
                const int* RESTRICT image_idx, const int* RESTRICT count,
                const ImageSize* RESTRICT sizes, Box* RESTRICT out, BoxWeights weights,
                int plus_one, int num_rows, int num_images) {
  const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= num_rows) return;
  const int n = row < *count ? image_idx[row] : -1;
  Box b = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (n >= 0 && n < num_images) {
    b = box_decode(rois[row], load_deltas(deltas + 4 * (uint64_t)row), weights, plus_one);
    b = box_clip(b, sizes[n], plus_one);
  }
  out[row] = b;
}
