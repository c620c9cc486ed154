// Proposals of the selected anchors: decoded, clipped, scored. Matches torchvision's
// RegionProposalNetwork.filter_proposals up to its NMS.
//
// Tensors: idx [N, M] i32, anchors [A_total, 4] f32, sizes [N, 2] i32, for each level logits
// [N, len] and deltas [N, len, 4], half or f32 (in), boxes [N, M, 4], scores [N, M] f32 (out, each
// row overwritten by the launch that holds its anchor's level). Launch: a thread for each row.
// Cost: two scattered sectors and 44 bytes a row (106,000 rows at 12 images), bound by latency.
// Numerics: f32, the CPU's operations in its order. Edges: an index that is no anchor gives zeros
// and -1.
#include "boxes.cuh"

constexpr int MAX_LEVELS = 8;

template <typename T>
struct Levels {
  const T* logits[MAX_LEVELS];
  const T* deltas[MAX_LEVELS];
  int ends[MAX_LEVELS];  // first anchor past the level
  int first;             // first anchor of the first level
  int num_levels;
  int total;   // anchors of all levels of all launches
  int strays;  // 1 in the launch that writes the rows without an anchor
};
static_assert(sizeof(Levels<half>) == 16 * MAX_LEVELS + 4 * MAX_LEVELS + 16, "as in cuda.rs");

template <typename T>
DEVICE void decode_proposals(const int* RESTRICT idx, const Box* RESTRICT anchors,
                             const ImageSize* RESTRICT sizes, Box* RESTRICT boxes,
                             float* RESTRICT scores, const Levels<T>& levels, int num_images,
                             int rows, BoxWeights weights, float min_size, float score_threshold,
                             int plus_one) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (uint64_t)num_images * rows) return;
  const int n = (int)(i / rows), anchor = idx[i];
  if (anchor < 0 || anchor >= levels.total) {
    if (!levels.strays) return;
    boxes[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    scores[i] = -1.0f;
    return;
  }
  int first = levels.first;
  if (anchor < first) return;
  // Counted to the constant, so that the levels are read at fixed places of the argument.
#pragma unroll
  for (int l = 0; l < MAX_LEVELS; l++) {
    if (l >= levels.num_levels) return;
    const int end = levels.ends[l];
    if (anchor < end) {
      const uint64_t at = (uint64_t)n * (end - first) + (anchor - first);
      Box b =
          box_decode(anchors[anchor], load_deltas(levels.deltas[l] + 4 * at), weights, plus_one);
      b = box_clip(b, sizes[n], plus_one);
      const float score = box_sigmoid((float)levels.logits[l][at]);
      const bool counts = !box_is_small(b, min_size, plus_one) && score >= score_threshold;
      boxes[i] = b;
      scores[i] = counts ? score : -1.0f;
      return;
    }
    first = end;
  }
}

KERNEL(256)
decode_proposals_f16(const int* idx, const Box* anchors, const ImageSize* sizes, Box* boxes,
                     float* scores, const Levels<half> levels, int num_images, int rows,
                     BoxWeights weights, float min_size, float score_threshold, int plus_one) {
  decode_proposals(idx, anchors, sizes, boxes, scores, levels, num_images, rows, weights, min_size,
                   score_threshold, plus_one);
}
EXPORT(decode_proposals_f16)

KERNEL(256)
decode_proposals_f32(const int* idx, const Box* anchors, const ImageSize* sizes, Box* boxes,
                     float* scores, const Levels<float> levels, int num_images, int rows,
                     BoxWeights weights, float min_size, float score_threshold, int plus_one) {
  decode_proposals(idx, anchors, sizes, boxes, scores, levels, num_images, rows, weights, min_size,
                   score_threshold, plus_one);
}
EXPORT(decode_proposals_f32)
