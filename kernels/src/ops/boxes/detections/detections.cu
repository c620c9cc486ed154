// Detections of each image from the box head's outputs; torchvision's
// RoIHeads.postprocess_detections.
//
//   logits          [M, classes + 1]     real        in   class logits; 0 is the background
//   deltas          [M, groups, 4]       real        in   box deltas per class, or shared by all
//   rois            [M, 4]               float       in   boxes that the deltas start from
//   image_idx       [M]                  int         in   image of the RoI
//   count           [1]                  int         in   RoIs in use
//   sizes           [N, 2]               int         in   height and width of the network's input
//   boxes           [N * per_image, 4]   float       out  detections, image after image
//   scores          [N * per_image]      float       out  descending within an image
//   labels          [N * per_image]      int         out  1 = first foreground class
//   image_idx       [N * per_image]      int         out  image of the detection
//   counts          [N]                  int         out  detections of each image
//   num_detections  [1]                  int         out  detections of all images
//
// Launch: score, suppress, count and merge; see each kernel; grids follow from shapes.
// Cost: at 1,000 RoIs and 80 classes per image 162 KB of logits and the deltas of candidates that
// pass; latency-bound.
// Numerics: fp32; softmax and boxes use the CPU's operations in its order, so that decisions are
// equal.
// Edge cases: a RoI with a NaN logit gives no detection.
//
// Passes: score each class of each RoI; sort and NMS per class and image; count; merge the classes
// of each image. Orders are (score descending, roi * classes + class ascending). NMS tests 64 boxes
// at a time against those already kept, since at most per_image are kept and few per class pass the
// score threshold. The sorts of all classes and images read 4 * M * classes * N bytes of scores
// from L2.
#include "boxes.cuh"
#include "nms.cuh"
#include "real.cuh"
#include "select.cuh"

REALS(fp16, fp32)

constexpr int THREADS = 256;
constexpr int SORT_CAPACITY = 2048;  // keys sorted in shared memory (16 KB)

// Thresholds and extents.
struct Setting {
  float score_threshold, nms_threshold, min_size;
  int plus_one;
  BoxWeights weights;
  int max_rois;     // M
  int num_classes;  // of the foreground
  int num_images;   // N
  int per_image;    // maximum number of detections per image
  int groups;       // num_classes + 1, or 1 if all classes share the deltas
};

// The head's outputs and the RoIs.
struct Rois {
  const real* deltas;  // [M, groups, 4]
  const Box* boxes;
  const int* image_idx;
  const int* count;
  const ImageSize* sizes;
};

// The box of a class (0 = first foreground) of a RoI of image n.
DEVICE Box class_box(const Rois& rois, const Setting& setting, int roi, int c, int n) {
  const uint64_t at = (uint64_t)roi * setting.groups + min(c + 1, setting.groups - 1);
  const float4 deltas = load_deltas(rois.deltas + 4 * at);
  const Box b = box_decode(rois.boxes[roi], deltas, setting.weights, setting.plus_one);
  return box_clip(b, rois.sizes[n], setting.plus_one);
}

// Scores [num_classes, M] of candidates that pass the score threshold and the minimum size, else
// -1. One warp per RoI; dynamic shared memory: num_classes + 1 floats per warp.
KERNEL(THREADS)
detections_score_f16(const real* RESTRICT logits, const Rois rois, const Setting setting,
                     float* RESTRICT scores) {
  DYNAMIC_SHARED(dynamic);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, classes = setting.num_classes + 1;
  const int roi = (int)(blockIdx.x * (blockDim.x / 32)) + warp;
  if (roi >= setting.max_rois) return;
  const int n = roi < *rois.count ? rois.image_idx[roi] : -1;
  const bool valid = n >= 0 && n < setting.num_images;
  float* exps = (float*)dynamic + warp * classes;
  float sum = 0.0f;
  if (valid) {
    const real* own = logits + (uint64_t)roi * classes;
    float highest = -INFINITY;
    for (int c = lane; c < classes; c += 32) highest = fmaxf(highest, to_float(own[c]));
    highest = warp_max(highest);
    for (int c = lane; c < classes; c += 32) exps[c] = expf(to_float(own[c]) - highest);
    __syncwarp();
    // Every lane sums all terms, in the CPU's order: scores must be bit-identical for ranking.
    for (int c = 0; c < classes; c++) sum += exps[c];
  }
  for (int c = lane; c < setting.num_classes; c += 32) {
    float result = -1.0f;
    if (valid) {
      const float s = exps[c + 1] / sum;
      // NaN is not above any threshold.
      if (s > setting.score_threshold) {
        const Box b = class_box(rois, setting, roi, c, n);
        if (!box_is_small(b, setting.min_size, setting.plus_one)) result = s;
      }
    }
    scores[(uint64_t)c * setting.max_rois + roi] = result;
  }
}

// Scratch memory: scores, candidates and survivors of each class.
struct Scratch {
  const float* scores;  // [num_classes, M]
  uint64_t* keys;       // [num_classes, M]: used if there are more candidates than SORT_CAPACITY
  Box* boxes;           // [num_classes, M]: sorted candidates, image after image
  uint64_t* kept;       // [N, num_classes, per_image]: keys of the survivors, best first
  int* kept_counts;     // [N, num_classes]
};

// For each box of a chunk, a mask of the earlier boxes of the chunk that suppress it; each thread
// writes 16 bits.
DEVICE void compare_chunk(const Box* chunk, int count, const Setting& setting, uint16_t* overlaps) {
  const int row = threadIdx.x % NMS_CHUNK, part = threadIdx.x / NMS_CHUNK;
  unsigned bits = 0;
  for (int i = 0; i < 16; i++) {
    const int other = 16 * part + i;
    const bool over = other < row && row < count &&
                      box_iou(chunk[other], chunk[row], setting.plus_one) > setting.nms_threshold;
    bits |= (unsigned)over << i;
  }
  overlaps[4 * row + part] = (uint16_t)bits;
}

// NMS of `count` sorted boxes; returns how many are kept (those past per_image are not written).
// The kernel wrote the boxes itself, so they are not RESTRICT: the compiler may load such data
// through the read-only cache, which is not coherent with its stores.
DEVICE int suppress(const Box* boxes, const uint64_t* keys, int count, const Setting& setting,
                    uint64_t* removed, uint64_t* RESTRICT kept_keys) {
  SHARED(Box, chunk, NMS_CHUNK);
  SHARED(uint64_t, rivals, NMS_CHUNK);
  SHARED(uint64_t, survivors, 1);
  for (int i = threadIdx.x; i * NMS_CHUNK < count; i += THREADS) removed[i] = 0;
  int total = 0;
  for (int first = 0; first < count && total < setting.per_image; first += NMS_CHUNK) {
    const int in_chunk = min(NMS_CHUNK, count - first);
    if ((int)threadIdx.x < in_chunk) chunk[threadIdx.x] = boxes[first + threadIdx.x];
    __syncthreads();
    compare_chunk(chunk, in_chunk, setting, (uint16_t*)rivals);
    __syncthreads();
    if (threadIdx.x < 32) {
      const uint64_t undecided = low_bits(in_chunk) & ~removed[first / NMS_CHUNK];
      const uint64_t stay = nms_resolve(undecided, rivals[threadIdx.x], rivals[threadIdx.x + 32]);
      if (threadIdx.x == 0) *survivors = stay;
    }
    __syncthreads();
    const uint64_t stay = *survivors;
    if (threadIdx.x < NMS_CHUNK && stay >> threadIdx.x & 1) {
      const int place = total + __popcll(stay & low_bits(threadIdx.x));
      if (place < setting.per_image) kept_keys[place] = keys[first + threadIdx.x];
    }
    total += __popcll(stay);
    for (int i = first + NMS_CHUNK + (int)threadIdx.x; i < count; i += THREADS) {
      const Box b = boxes[i];
      bool over = false;
      // Iterating over the set bits instead spills registers on sm_90a.
      for (int by = 0; by < in_chunk && !over; by++)
        over = *survivors >> by & 1 &&
               box_iou(chunk[by], b, setting.plus_one) > setting.nms_threshold;
      if (over) atomicOr(&removed[i / NMS_CHUNK], 1ull << i % NMS_CHUNK);
    }
    __syncthreads();
  }
  return total;
}

// Sorts the candidates of one class in one image and applies NMS. Grid: K, N; dynamic shared
// memory: one bit per RoI.
KERNEL_BLOCKS(THREADS, 4)
detections_classes_f16(const Rois rois, const Setting setting, const Scratch scratch) {
  DYNAMIC_SHARED(dynamic);
  SHARED(uint64_t, shared_keys, SORT_CAPACITY);
  SHARED(int, sums, 32);
  SHARED(int, list_len, 1);
  const int c = blockIdx.x, n = blockIdx.y;
  const int num_rois = min(*rois.count, setting.max_rois);
  const uint64_t column = (uint64_t)c * setting.max_rois;
  const float* scores = scratch.scores + column;
  // An image's candidates begin at the number of RoIs of earlier images, so each image has enough
  // space.
  int count = 0, start = 0;
  for (int roi = threadIdx.x; roi < num_rois; roi += THREADS) {
    const int image = rois.image_idx[roi];
    count += image == n && scores[roi] >= 0.0f;
    start += image >= 0 && image < n;
  }
  count = block_sum(count, sums);
  start = block_sum(start, sums);
  uint64_t* keys = count <= SORT_CAPACITY ? shared_keys : scratch.keys + column + start;
  if (threadIdx.x == 0) *list_len = 0;
  __syncthreads();
  for (int first = 0; first < num_rois; first += THREADS) {
    const int roi = first + (int)threadIdx.x;
    const bool found = roi < num_rois && rois.image_idx[roi] == n && scores[roi] >= 0.0f;
    const int place = take_place(found, list_len);
    if (found)
      keys[place] = rank_key(rank_bits(scores[roi]), (unsigned)roi * setting.num_classes + c);
  }
  block_sort(keys, count);
  Box* boxes = scratch.boxes + column + start;
  for (int i = threadIdx.x; i < count; i += THREADS)
    boxes[i] = class_box(rois, setting, (int)(key_index(keys[i]) / setting.num_classes), c, n);
  __syncthreads();
  const uint64_t own = (uint64_t)n * setting.num_classes + c;
  const int total = suppress(boxes, keys, count, setting, (uint64_t*)dynamic,
                             scratch.kept + own * setting.per_image);
  if (threadIdx.x == 0) scratch.kept_counts[own] = min(total, setting.per_image);
}

// Counts the detections of each image: one block per image.
KERNEL(THREADS)
detections_count(const int* RESTRICT kept_counts, int* RESTRICT counts, int num_classes,
                 int per_image) {
  SHARED(int, sums, 32);
  const int* own = kept_counts + (uint64_t)blockIdx.x * num_classes;
  int total = 0;
  for (int c = threadIdx.x; c < num_classes; c += THREADS) total += own[c];
  total = block_sum(total, sums);
  if (threadIdx.x == 0) counts[blockIdx.x] = min(total, per_image);
}

// The output.
struct Found {
  Box* boxes;
  float* scores;
  int* labels;
  int* image_idx;
  int* num_detections;
};

// Writes each survivor at its rank within its image. One thread per slot of a class and per row of
// the output; grid: blocks of these threads, N (at least 1).
KERNEL(THREADS)
detections_merge_f16(const Rois rois, const Setting setting, const Scratch scratch,
                     const int* RESTRICT counts, const Found found) {
  const int n = blockIdx.y, place = blockIdx.x * blockDim.x + threadIdx.x;
  const int per_image = setting.per_image, num_classes = setting.num_classes;
  int before = 0, all = 0;
  for (int i = 0; i < setting.num_images; i++) {
    if (i == n) before = all;
    all += counts[i];
  }
  if (n == 0 && place == 0) *found.num_detections = all;
  if (n >= setting.num_images) return;
  const uint64_t row = (uint64_t)n * per_image + place;
  if (place < per_image && row >= (uint64_t)all) {
    found.boxes[row] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    found.scores[row] = 0.0f;
    found.labels[row] = 0;
    found.image_idx[row] = -1;
  }
  if (place >= num_classes * per_image) return;
  const int c = place / per_image, own_rank = place % per_image;
  const int* kept_counts = scratch.kept_counts + (uint64_t)n * num_classes;
  const uint64_t* kept = scratch.kept + (uint64_t)n * num_classes * per_image;
  if (own_rank >= kept_counts[c]) return;
  const uint64_t key = kept[place];
  int rank = 0;
  for (int i = 0; i < num_classes && rank < per_image; i++)
    rank += keys_below(kept + (uint64_t)i * per_image, kept_counts[i], key);
  if (rank >= per_image) return;
  const int out = before + rank;
  found.boxes[out] = class_box(rois, setting, (int)(key_index(key) / num_classes), c, n);
  found.scores[out] = key_score(key);
  found.labels[out] = c + 1;
  found.image_idx[out] = n;
}
