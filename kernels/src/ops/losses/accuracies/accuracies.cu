// Counts of right and wrong predictions in a training step; detectron2's training accuracies.
//
//   class_logits   [M, classes]        real   in       a column per class, background first
//   labels         [M]                 int    in       class, 0 background, below 0 ignored
//   anchor_logits  [anchors]           real   in       of the sampled anchors
//   anchor_labels  [anchors]           int    in       1 positive, 0 negative, below 0 ignored
//   proposals      [N, max_props, 4]   float  in       boxes of each image
//   counts         [N]                 int    in       proposals of each image
//   gts            [N, max_gts, 4]     float  in       ground truth
//   gt_counts      [N]                 int    in       ground truths of each image
//   num_images     [1]                 int    in       images in use
//   mask_logits    [masks, pixels]     real   in       logits of the row's class, or null
//   mask_labels    [masks]             int    in       above 0: counted, or null
//   mask_targets   [masks, pixels]     float  in       mask of the row, or null
//   partials       [blocks, COUNTS]    int    scratch  counts of each block
//   tally          [COUNTS]            int    out      accuracies_total: their sums
//
// Launch: 128 blocks of 256 threads; a warp per RoI and object, a thread per anchor and pixel.
// Cost: 6 bytes per pixel of a positive RoI, 7 MB at 12 images; latency-bound.
// Numerics: integers; comparisons and overlaps as on the CPU.
// Edge cases: a NaN logit is never the maximum nor above 0.
#include "boxes.cuh"
#include "real.cuh"
#include "reduce.cuh"

REALS(fp16, fp32)

constexpr int COUNTS = 15;
constexpr int BLOCKS = 128;

// Indices of the counts in a tally.
enum Count {
  IMAGES,
  FOREGROUND,
  BACKGROUND,
  FOREGROUND_RIGHT,
  BACKGROUND_RIGHT,
  MISSED,
  POSITIVES,
  NEGATIVES,
  POSITIVES_FOUND,
  OBJECTS,
  OBJECTS_COVERED,
  INSIDE,
  OUTSIDE,
  INSIDE_WRONG,
  OUTSIDE_WRONG,
};

// The inputs. Same layout as the struct that the launch builds.
struct Predictions {
  const real* class_logits;
  const int* labels;
  const real* anchor_logits;
  const int* anchor_labels;
  const Box* proposals;
  const int* counts;
  const Box* gts;
  const int *gt_counts, *num_images;
  const real* mask_logits;
  const int* mask_labels;
  const float* mask_targets;
  int rows, classes, anchors, images, max_props, max_gts, masks, pixels;
  int plus_one;
  float covers;  // minimum IoU for a proposal to cover an object
};
static_assert(sizeof(Predictions) == 136, "the launch builds it");

// True in all lanes if `own` has the greatest logit of a row, and is the lowest such class.
DEVICE bool is_predicted(const real* x, int classes, int own, int lane) {
  bool beaten = own >= classes;
  const float mine = beaten ? 0.0f : to_float(x[own]);
  for (int c = lane; c < classes; c += 32) {
    const float other = to_float(x[c]);
    beaten |= c < own ? !(mine > other) : !(mine >= other);
  }
  return __ballot_sync(ALL_LANES, beaten) == 0;
}

// Counts RoIs: one warp each.
DEVICE void count_rois(const Predictions& in, int warp, int warps, int lane, int* mine) {
  for (int row = warp; row < in.rows; row += warps) {
    const int label = in.labels[row];
    if (label < 0) continue;
    const real* x = in.class_logits + (uint64_t)row * in.classes;
    const bool is_background = is_predicted(x, in.classes, 0, lane);
    const bool is_right = label > 0 ? is_predicted(x, in.classes, label, lane) : is_background;
    if (lane > 0) continue;
    mine[FOREGROUND] += label > 0;
    mine[BACKGROUND] += label == 0;
    mine[FOREGROUND_RIGHT] += label > 0 && is_right;
    mine[BACKGROUND_RIGHT] += label == 0 && is_right;
    mine[MISSED] += label > 0 && is_background;
  }
}

// Counts images, and objects: one warp each.
DEVICE void count_objects(const Predictions& in, int warp, int warps, int lane, int* mine) {
  const int images = min(max(*in.num_images, 0), in.images);
  if (warp == 0 && lane == 0) mine[IMAGES] += images;
  for (int i = warp; i < images * in.max_gts; i += warps) {
    const int n = i / in.max_gts;
    if (i % in.max_gts >= in.gt_counts[n]) continue;
    const Box gt = in.gts[i];
    const Box* own = in.proposals + (uint64_t)n * in.max_props;
    const int count = min(max(in.counts[n], 0), in.max_props);
    bool is_covered = false;
    for (int p = lane; p < count; p += 32)
      is_covered |= box_iou(gt, own[p], in.plus_one) >= in.covers;
    is_covered = __ballot_sync(ALL_LANES, is_covered) != 0;
    if (lane > 0) continue;
    mine[OBJECTS] += 1;
    mine[OBJECTS_COVERED] += is_covered;
  }
}

KERNEL(256) accuracies_f16(const Predictions in, int* RESTRICT partials) {
  SHARED(int, sums, COUNTS);
  const int lane = threadIdx.x % 32, threads = gridDim.x * blockDim.x;
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x < COUNTS) sums[threadIdx.x] = 0;
  __syncthreads();
  int mine[COUNTS] = {};
  count_rois(in, thread / 32, threads / 32, lane, mine);
  count_objects(in, thread / 32, threads / 32, lane, mine);
  for (int i = thread; i < in.anchors; i += threads) {
    const int label = in.anchor_labels[i];
    mine[POSITIVES] += label > 0;
    mine[NEGATIVES] += label == 0;
    mine[POSITIVES_FOUND] += label > 0 && to_float(in.anchor_logits[i]) > 0.0f;
  }
  for (int row = blockIdx.x; row < in.masks; row += gridDim.x) {
    if (in.mask_labels[row] <= 0) continue;
    for (int pixel = threadIdx.x; pixel < in.pixels; pixel += blockDim.x) {
      const uint64_t at = (uint64_t)row * in.pixels + pixel;
      const bool is_inside = in.mask_targets[at] > 0.5f;
      const bool predicted = to_float(in.mask_logits[at]) > 0.0f;
      mine[INSIDE] += is_inside;
      mine[OUTSIDE] += !is_inside;
      mine[INSIDE_WRONG] += is_inside && !predicted;
      mine[OUTSIDE_WRONG] += !is_inside && predicted;
    }
  }
  for (int i = 0; i < COUNTS; i++)
    if (mine[i] > 0) atomicAdd(&sums[i], mine[i]);
  __syncthreads();
  if (threadIdx.x < COUNTS) partials[blockIdx.x * COUNTS + threadIdx.x] = sums[threadIdx.x];
}

KERNEL(32) accuracies_total(const int* RESTRICT partials, int* RESTRICT tally) {
  if (threadIdx.x >= COUNTS) return;
  int sum = 0;
  for (int block = 0; block < BLOCKS; block++) sum += partials[block * COUNTS + threadIdx.x];
  tally[threadIdx.x] = sum;
}
