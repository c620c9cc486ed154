// Concatenates the proposals of all images into one list.
//
//   proposals  [N, capacity, 4]   float  in   boxes of each image
//   counts     [N]                int    in   how many of them are in use
//   rois       [N * capacity, 4]  float  out  those in use, image after image, then zeros
//   image_idx  [N * capacity]     int    out  image of the row, -1 past the last
//   num_rois   [1]                int    out  rows in use
//
// Launch: a thread per proposal, grid [N, ceil(capacity / 256)], one block at least.
// Cost: 40 bytes per row, and each block sums the N counts; latency-bound.
// Numerics: copies.
// Edge cases: counts outside [0, capacity] are clamped to it.
//
// Each thread moves one proposal, or, if its slot is unused, writes one padding row.
#include "platform.cuh"
#include "reduce.cuh"

KERNEL(256)
flatten_rois(const float4* RESTRICT proposals, const int* RESTRICT counts, float4* RESTRICT rois,
             int* RESTRICT image_idx, int* RESTRICT num_rois, int images, int capacity) {
  SHARED(int, scratch, 32);
  const int image = blockIdx.x, place = blockIdx.y * blockDim.x + threadIdx.x;
  int before = 0, all = 0;
  for (int n = threadIdx.x; n < images; n += blockDim.x) {
    const int count = min(max(counts[n], 0), capacity);
    all += count;
    before += n < image ? count : 0;
  }
  before = block_sum(before, scratch);
  all = block_sum(all, scratch);
  if (image == 0 && place == 0) *num_rois = all;
  if (image >= images || place >= capacity) return;
  const int count = min(max(counts[image], 0), capacity);
  if (place < count) {
    rois[before + place] = proposals[(uint64_t)image * capacity + place];
    image_idx[before + place] = image;
  } else {
    // The number of padding rows before this row is the number of unused slots before this slot.
    const int row = all + image * capacity - before + place - count;
    rois[row] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    image_idx[row] = -1;
  }
}
