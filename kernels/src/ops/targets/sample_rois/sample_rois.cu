// Samples the RoIs for training the heads, all images in one list, and a second list of the
// positives for the mask head.
//
//   candidates    [N, capacity, 4]  float  in       proposals and ground truth
//   labels        [N, capacity]     int    in       class, 0 background, -1 ignored
//   matched_idx   [N, capacity]     int    in       ground truth of each candidate
//   keys          [N, capacity]     int    in       the candidate's anchor or ground truth
//   counts        [N]               int    in       candidates of each image
//   image_keys    [N, 4]            int    in       random number keys of the image
//   drawn         [N, batch, 2]     int    scratch  candidate; rank among sampled positives, or -1
//   drawn_counts  [N, 2]            int    scratch  number of samples, and of positives
//   rois          [N * batch, 4]    float  out      boxes; of positives: [N * max_positives, 4]
//   image_idx     [N * batch]       int    out      image of the RoI
//   labels        [N * batch]       int    out      its class
//   matched       [N * batch]       int    out      its ground truth
//   count         [1]               int    out      RoIs in use
//
// Launch: sample_rois_draw: a block of 1,024 threads per image, radix select in shared memory;
// sample_rois_write: a thread per row.
// Cost: 5 passes over at most 2,100 candidates, about 20 us; latency-bound.
// Numerics: integers and copies; the CPU's result.
// Edge cases: rows past the count are padded: zeros in boxes, -1 elsewhere.
//
// There are two sets of the five outputs: all RoIs, and positives in max_positives rows per image.
#include "sampling.cuh"

constexpr int DRAW_THREADS = 1024;

struct Candidates {
  const int *labels, *keys;
  const int* image_key;
  int count;
};

// Class and key of a candidate.
DEVICE int look(const Candidates& from, uint64_t seed, int i, unsigned& key) {
  const int c = i < from.count ? class_of(from.labels[i]) : CLASSES;
  if (c < CLASSES) key = philox_keyed(seed, from.image_key, PURPOSE_ROIS, (unsigned)from.keys[i]);
  return c;
}

// Finds the largest sampled key of each class, and how many candidates with that key are sampled.
// `histogram` holds CLASSES * BINS ints.
DEVICE void select(Draw (&draws)[CLASSES], const Candidates& from, uint64_t seed, int batch,
                   int max_positives, int* histogram, int* scratch) {
  for (int digit = 0; digit < DIGITS; digit++) {
    for (int i = threadIdx.x; i < CLASSES * BINS; i += DRAW_THREADS) histogram[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < from.count; i += DRAW_THREADS) {
      unsigned key = 0;
      const int c = look(from, seed, i, key);
      if (c < CLASSES && shares_bytes(draw_for(draws, c), key, digit)) {
        atomicAdd(&histogram[c * BINS + byte_of(key, digit)], 1);
      }
    }
    __syncthreads();
    if (digit == 0) {
      int counts[CLASSES];
      for (int c = 0; c < CLASSES; c++) {
        const int count = threadIdx.x < BINS ? histogram[c * BINS + threadIdx.x] : 0;
        counts[c] = block_sum(count, scratch);
      }
      begin_draws(draws, counts, batch, max_positives);
    }
    for (int c = 0; c < CLASSES; c++) narrow(draws[c], histogram + c * BINS, digit, scratch);
    __syncthreads();
  }
}

KERNEL(1024)
sample_rois_draw(const int* RESTRICT labels, const int* RESTRICT keys, const int* RESTRICT counts,
                 const int* RESTRICT image_keys, int2* RESTRICT drawn, int2* RESTRICT drawn_counts,
                 uint64_t seed, int capacity, int batch, int max_positives) {
  SHARED(int, histogram, CLASSES* BINS);
  SHARED(int, scratch, 32);
  const int n = blockIdx.x, thread = threadIdx.x;
  const int64_t first = (int64_t)n * capacity;
  const Candidates from = {labels + first, keys + first, image_keys + 4 * (int64_t)n,
                           max(0, min(counts[n], capacity))};
  Draw draws[CLASSES] = {};
  select(draws, from, seed, batch, max_positives, histogram, scratch);
  // Each scan packs two counts, which are at most 1,024 per chunk, into the halves of an int.
  int tied_before[CLASSES] = {}, rank_before = 0, positives_before = 0, total;
  for (int chunk = 0; chunk < from.count; chunk += DRAW_THREADS) {
    const int i = chunk + thread;
    unsigned key = 0;
    const int c = look(from, seed, i, key);
    const Draw draw = draw_for(draws, c);
    const bool tied = c < CLASSES && ties(draw, key);
    const int ranks = block_exclusive_sum(tied ? 1 << 16 * c : 0, scratch, total);
    bool taken = c < CLASSES && surely_drawn(draw, key);
    if (tied) {
      const int before = c == 0 ? tied_before[0] : tied_before[1];
      taken = before + (ranks >> 16 * c & 0xffff) < draw.room;
    }
    tied_before[0] += total & 0xffff;
    tied_before[1] += total >> 16;
    const int places = block_exclusive_sum(taken ? (c == 0 ? 0x10001 : 1) : 0, scratch, total);
    if (taken) {
      const int rank = rank_before + (places & 0xffff);
      const int positive = c == 0 ? positives_before + (places >> 16) : -1;
      drawn[(int64_t)n * batch + rank] = make_int2(i, positive);
    }
    rank_before += total & 0xffff;
    positives_before += total >> 16;
  }
  if (thread == 0) drawn_counts[n] = make_int2(rank_before, positives_before);
}

// A list of RoIs under construction.
struct RoiList {
  float4* rois;
  int *image_idx, *labels, *matched, *count;
};
static_assert(sizeof(RoiList) == 40, "five pointers, as the launch lays them out");

DEVICE void put(const RoiList& list, int64_t row, float4 roi, int image, int label, int matched) {
  list.rois[row] = roi;
  list.image_idx[row] = image;
  list.labels[row] = label;
  list.matched[row] = matched;
}

KERNEL(256)
sample_rois_write(const float4* RESTRICT candidates, const int* RESTRICT labels,
                  const int* RESTRICT matched_idx, const int2* RESTRICT drawn,
                  const int2* RESTRICT drawn_counts, RoiList all, RoiList positives, int images,
                  int capacity, int batch, int max_positives) {
  const int64_t slot = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  const int own = batch > 0 ? (int)(slot / batch) : images;  // image of this thread
  int2 before = make_int2(0, 0), total = make_int2(0, 0);
  for (int n = 0; n < images; n++) {
    const int2 count = drawn_counts[n];
    if (n < own) before = make_int2(before.x + count.x, before.y + count.y);
    total = make_int2(total.x + count.x, total.y + count.y);
  }
  if (own < images && slot % batch < drawn_counts[own].x) {
    const int2 row = drawn[slot];
    const int64_t at = (int64_t)own * capacity + row.x;
    const float4 roi = candidates[at];
    const int label = labels[at], matched = matched_idx[at];
    put(all, before.x + slot % batch, roi, own, label, matched);
    if (row.y >= 0) put(positives, before.y + row.y, roi, own, label, matched);
  }
  const float4 nowhere = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (slot >= total.x && slot < (int64_t)images * batch) put(all, slot, nowhere, -1, -1, -1);
  if (slot >= total.y && slot < (int64_t)images * max_positives) {
    put(positives, slot, nowhere, -1, -1, -1);
  }
  if (slot == 0) {
    all.count[0] = total.x;
    positives.count[0] = total.y;
  }
}
