// Labels of the anchors for the RPN losses, and the ground truth of each foreground anchor;
// torchvision's Matcher.
//
//   anchors        [A, 4]     float  in       anchors of all levels
//   gt_boxes       [N, G, 4]  float  in       ground truth
//   gt_counts      [N]        int    in       ground truths of each image
//   network_sizes  [N, 2]     int    in       height and width of the network's input
//   num_images     [1]        int    in       images in use
//   highest        [N, G]     int    scratch  best IoU of each ground truth, a float's bit pattern
//   labels         [N, A]     int    out      1 foreground, 0 background, -1 ignored
//   matched        [N, A]     int    out      ground truth of each anchor
//
// Launch: match_anchors_clear, _highest, _label: blocks of 256 threads with 4 anchors each; grid y
// is the image.
// Cost: two passes of A * count IoUs; most boxes do not intersect and cost 10 instructions: 22M
// pairs at 12 images of 7 objects; compute-bound.
// Numerics: fp32 in the CPU's order; integer atomics find the maxima, the same in any order.
// Edge cases: images past num_images are all -1; for an object that overlaps no anchor, all anchors
// tie at 0.
//
// Ground truths are staged tile by tile in shared memory. The IoU matrix is never stored: the label
// pass recomputes it, which costs less than storing the best of each anchor. IoUs are never
// negative, so their maxima are the integer maxima of their bit patterns.
#include "boxes.cuh"

constexpr int THREADS = 256;
constexpr int ANCHORS = 4;  // per thread: a ground truth is read once for all
constexpr int TILE = 128;   // ground truths in shared memory

// The IoU, equal to box_iou, but without a division if the boxes do not intersect.
DEVICE float overlap(Box gt, float gt_area, Box anchor, float anchor_area, int plus_one) {
  const float shared = box_shared(gt, anchor, plus_one);
  if (!(shared > 0.0f)) return 0.0f;
  const float united = gt_area + anchor_area - shared;
  return united > 0.0f ? shared / united : 0.0f;
}

KERNEL(256)
match_anchors_clear(int* RESTRICT highest, uint64_t len) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < len) highest[i] = 0;
}

// Ground truths of an image that are in use.
DEVICE int gts_in_use(const int* gt_counts, const int* num_images, int n, int num_gts) {
  return n < num_images[0] ? max(0, min(gt_counts[n], num_gts)) : 0;
}

// The thread's anchors; past the end, boxes that intersect no ground truth.
DEVICE void load_anchors(Box (&boxes)[ANCHORS], float (&areas)[ANCHORS], const Box* anchors,
                         int num_anchors, int plus_one) {
  for (int k = 0; k < ANCHORS; k++) {
    const int64_t i = (int64_t)blockIdx.x * THREADS * ANCHORS + k * THREADS + threadIdx.x;
    boxes[k] = i < num_anchors ? anchors[i] : make_float4(NAN, NAN, NAN, NAN);
    areas[k] = box_area(boxes[k], plus_one);
  }
}

KERNEL(256)
match_anchors_highest(const Box* RESTRICT anchors, const Box* RESTRICT gt_boxes,
                      const int* RESTRICT gt_counts, const int* RESTRICT num_images,
                      int* RESTRICT highest, int num_anchors, int num_gts, int plus_one) {
  SHARED(Box, gts, TILE);
  SHARED(float, gt_areas, TILE);
  SHARED(int, high, TILE);
  const int n = blockIdx.y, thread = threadIdx.x;
  const int count = gts_in_use(gt_counts, num_images, n, num_gts);
  Box boxes[ANCHORS];
  float areas[ANCHORS];
  load_anchors(boxes, areas, anchors, num_anchors, plus_one);
  for (int first = 0; first < count; first += TILE) {
    const int len = min(TILE, count - first);
    const int64_t from = (int64_t)n * num_gts + first;
    if (thread < len) {
      gts[thread] = gt_boxes[from + thread];
      gt_areas[thread] = box_area(gts[thread], plus_one);
      high[thread] = 0;
    }
    __syncthreads();
    for (int g = 0; g < len; g++) {
      int best = 0;
      for (int k = 0; k < ANCHORS; k++) {
        const float iou = overlap(gts[g], gt_areas[g], boxes[k], areas[k], plus_one);
        best = max(best, __float_as_int(iou));
      }
      // Few threads have an anchor that intersects the box, and only these execute the atomic.
      if (best > 0) atomicMax(&high[g], best);
    }
    __syncthreads();
    if (thread < len && high[thread] > 0) atomicMax(&highest[from + thread], high[thread]);
    __syncthreads();
  }
}

struct MatchRule {
  float fg_iou, bg_iou;
  int low_quality, plus_one, straddle_filter;
};
static_assert(sizeof(MatchRule) == 20, "as the launch lays it out");

KERNEL(256)
match_anchors_label(const Box* RESTRICT anchors, const Box* RESTRICT gt_boxes,
                    const int* RESTRICT gt_counts, const int* RESTRICT network_sizes,
                    const int* RESTRICT num_images, const int* RESTRICT highest,
                    int* RESTRICT labels, int* RESTRICT matched, MatchRule rule, int num_anchors,
                    int num_gts) {
  SHARED(Box, gts, TILE);
  SHARED(float, gt_areas, TILE);
  SHARED(float, high, TILE);
  const int n = blockIdx.y, thread = threadIdx.x;
  const int count = gts_in_use(gt_counts, num_images, n, num_gts);
  Box boxes[ANCHORS];
  float areas[ANCHORS], best[ANCHORS];
  int best_gt[ANCHORS], keep[ANCHORS];
  load_anchors(boxes, areas, anchors, num_anchors, rule.plus_one);
  for (int k = 0; k < ANCHORS; k++) {
    best[k] = -1.0f;
    best_gt[k] = keep[k] = 0;
  }
  for (int first = 0; first < count; first += TILE) {
    const int len = min(TILE, count - first);
    const int64_t from = (int64_t)n * num_gts + first;
    if (thread < len) {
      gts[thread] = gt_boxes[from + thread];
      gt_areas[thread] = box_area(gts[thread], rule.plus_one);
      high[thread] = rule.low_quality ? __int_as_float(highest[from + thread]) : NAN;
    }
    __syncthreads();
    for (int g = 0; g < len; g++) {
      for (int k = 0; k < ANCHORS; k++) {
        const float iou = overlap(gts[g], gt_areas[g], boxes[k], areas[k], rule.plus_one);
        if (iou > best[k]) {
          best[k] = iou;
          best_gt[k] = first + g;
        }
        keep[k] |= iou == high[g];
      }
    }
    __syncthreads();
  }
  const ImageSize size = {network_sizes[2 * (int64_t)n], network_sizes[2 * (int64_t)n + 1]};
  const bool in_use = n < num_images[0];
  for (int k = 0; k < ANCHORS; k++) {
    const int64_t i = (int64_t)blockIdx.x * THREADS * ANCHORS + k * THREADS + thread;
    if (i >= num_anchors) continue;
    const bool background = best[k] < rule.bg_iou;
    const bool foreground = keep[k] || (!background && !(best[k] < rule.fg_iou));
    const bool ignored = !in_use || (rule.straddle_filter && !box_inside(boxes[k], size));
    const int64_t at = (int64_t)n * num_anchors + i;
    labels[at] = ignored ? -1 : foreground ? 1 : background ? 0 : -1;
    matched[at] = in_use && foreground ? best_gt[k] : 0;
  }
}
