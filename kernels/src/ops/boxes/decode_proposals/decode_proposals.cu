// Proposals of the selected anchors, decoded, clipped and scored; torchvision's filter_proposals up
// to its NMS.
//
//   idx      [N, rows]     int         in   selected anchors
//   anchors  [A, 4]        float       in   anchors of all levels
//   sizes    [N, 2]        int         in   height and width of the network's input
//   logits   [N, len]      real        in   of each level
//   deltas   [N, len, 4]   real        in   of each level
//   boxes    [N, rows, 4]  float       out  decoded and clipped
//   scores   [N, rows]     float       out  sigmoid of the logit, or -1: invalid
//
// Launch: a thread per row, blocks of 256; a row is written by the launch that processes the level
// of its anchor.
// Cost: two scattered sectors and 44 bytes per row (106,000 rows at 12 images); latency-bound.
// Numerics: fp32, the CPU's operations in its order.
// Edge cases: an invalid anchor index gives zeros and -1.
#include "boxes.cuh"
#include "real.cuh"

REALS(fp16, fp32)

constexpr int MAX_LEVELS = 8;

struct Levels {
  const real* logits[MAX_LEVELS];
  const real* deltas[MAX_LEVELS];
  int ends[MAX_LEVELS];  // first anchor past the level
  int first;             // first anchor of the first level
  int num_levels;
  int total;   // anchors of all levels of all launches
  int strays;  // 1 in the launch that writes the rows with an invalid index
};
static_assert(sizeof(Levels) == 16 * MAX_LEVELS + 4 * MAX_LEVELS + 16, "as the launch lays it out");

KERNEL(256)
decode_proposals_f16(const int* RESTRICT idx, const Box* RESTRICT anchors,
                     const ImageSize* RESTRICT sizes, Box* RESTRICT boxes, float* RESTRICT scores,
                     const Levels levels, int num_images, int rows, BoxWeights weights,
                     float min_size, float score_threshold, int plus_one) {
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
  // Unrolled with a constant count, so that the levels are read at constant argument offsets.
#pragma unroll
  for (int l = 0; l < MAX_LEVELS; l++) {
    if (l >= levels.num_levels) return;
    const int end = levels.ends[l];
    if (anchor < end) {
      const uint64_t at = (uint64_t)n * (end - first) + (anchor - first);
      Box b =
          box_decode(anchors[anchor], load_deltas(levels.deltas[l] + 4 * at), weights, plus_one);
      b = box_clip(b, sizes[n], plus_one);
      const float score = box_sigmoid(to_float(levels.logits[l][at]));
      const bool counts = !box_is_small(b, min_size, plus_one) && score >= score_threshold;
      boxes[i] = b;
      scores[i] = counts ? score : -1.0f;
      return;
    }
    first = end;
  }
}
