// The proposals of all images as one list. Matches the CPU reference bit by bit.
//
// Tensors: proposals [N, P] float4 (in), counts [N] int (in) -> rois [N * P] float4, image_idx
// [N * P] int, num_rois [1] int (out, overwritten). Launch: blocks of 256, grid [N, ceil(P / 256)]:
// a thread moves one proposal, or writes one row of the padding in its place; one block if there
// are no rows. Cost: 40 bytes a row, and each block adds up the N counts. Numerics: exact.
// Edges: counts beyond [0, P] are held to it.
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
    // The unused places before this one are as many as the rows of the padding before its row.
    const int row = all + image * capacity - before + place - count;
    rois[row] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    image_idx[row] = -1;
  }
}
EXPORT(flatten_rois)
