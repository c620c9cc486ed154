// The anchors of each image that carry the RPN losses: of each class those with the smallest
// (key, index), by radix select over all blocks of an image. Equals sample_anchors on the CPU.
//
// Letters: N images, A anchors, B = batch. Tensors: labels [N, A], image_keys [N, 4] i32 (in); idx
// [N, B], counts [N, 2] i32 (out, overwritten); scratch: histograms [N, DIGITS, CLASSES, BINS] int,
// block_counts [N, blocks, CLASSES] u64. Launch: clear; a histogram for each byte of the keys;
// count; write: blocks of 256 threads that each own CHUNK anchors of an image (grid y). Every block
// derives the state of the selection from the histograms by itself (a block scan for each byte), so
// nothing has to wait. Cost: six passes over labels and keys, 3.2M at 12 images: Philox, some 80
// instructions a key. Numerics: integers. Edges: equal keys go by index; A = 0 draws nothing.
#include "sampling.cuh"

constexpr int THREADS = 256;
constexpr int ITEMS = 16;  // anchors a thread draws, in their order
constexpr int CHUNK = THREADS * ITEMS;
constexpr int IMAGE_BINS = DIGITS * CLASSES * BINS;

KERNEL(256)
sample_anchors_clear(int* RESTRICT histograms, uint64_t len) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < len) histograms[i] = 0;
}
EXPORT(sample_anchors_clear)

// What the first `digits` histograms of an image tell, `digits` at least 1.
DEVICE void replay(Draw (&draws)[CLASSES], const int* histograms, int digits, int batch,
                   int max_positives, int* scratch) {
  int counts[CLASSES];
#pragma unroll  // the draws stay in registers
  for (int c = 0; c < CLASSES; c++) {
    counts[c] = block_sum(histograms[c * BINS + threadIdx.x], scratch);
  }
  begin_draws(draws, counts, batch, max_positives);
  for (int digit = 0; digit < digits; digit++) {
#pragma unroll
    for (int c = 0; c < CLASSES; c++) {
      narrow(draws[c], histograms + (digit * CLASSES + c) * BINS, digit, scratch);
    }
  }
}

KERNEL(256)
sample_anchors_histogram(const int* RESTRICT labels, const int* RESTRICT image_keys,
                         int* RESTRICT histograms, KeyOrder order, int num_anchors, int batch,
                         int max_positives, int digit) {
  SHARED(int, scratch, 32);
  SHARED(int, own, CLASSES* BINS);
  const int n = blockIdx.y, thread = threadIdx.x;
  const int* image_key = image_keys + 4 * (int64_t)n;
  const int* image_labels = labels + (int64_t)n * num_anchors;
  int* of_image = histograms + (int64_t)n * IMAGE_BINS;
  Draw draws[CLASSES] = {};
  if (digit > 0) replay(draws, of_image, digit, batch, max_positives, scratch);
  for (int c = 0; c < CLASSES; c++) own[c * BINS + thread] = 0;
  __syncthreads();
#pragma unroll 4
  for (int item = 0; item < ITEMS; item++) {
    const int64_t i = (int64_t)blockIdx.x * CHUNK + item * THREADS + thread;
    const int c = i < num_anchors ? class_of(image_labels[i]) : CLASSES;
    const Draw draw = draw_for(draws, c);
    if (c == CLASSES || (digit > 0 && !undecided(draw))) continue;
    const unsigned key = sample_key(order, image_key, PURPOSE_ANCHORS, (unsigned)i, (unsigned)i);
    if (shares_bytes(draw, key, digit)) atomicAdd(&own[c * BINS + byte_of(key, digit)], 1);
  }
  __syncthreads();
  for (int c = 0; c < CLASSES; c++) {
    const int count = own[c * BINS + thread];
    if (count > 0) atomicAdd(&of_image[(digit * CLASSES + c) * BINS + thread], count);
  }
}
EXPORT(sample_anchors_histogram)

// Which of a thread's anchors are drawn: bit i for its i-th anchor, by class.
struct Marks {
  unsigned sure[CLASSES], tied[CLASSES];
};

DEVICE Marks mark(const Draw (&draws)[CLASSES], const int* labels, const int* image_key,
                  KeyOrder order, int64_t first, int num_anchors) {
  Marks marks = {};
#pragma unroll 2
  for (int item = 0; item < ITEMS; item++) {
    const int64_t i = first + item;
    const int c = i < num_anchors ? class_of(labels[i]) : CLASSES;
    if (c == CLASSES) continue;
    const Draw draw = draw_for(draws, c);
    unsigned key = 0;
    if (undecided(draw)) {
      key = sample_key(order, image_key, PURPOSE_ANCHORS, (unsigned)i, (unsigned)i);
    }
    const unsigned sure = (unsigned)surely_drawn(draw, key) << item;
    const unsigned tied = (unsigned)ties(draw, key) << item;
    marks.sure[0] |= c == 0 ? sure : 0;
    marks.tied[0] |= c == 0 ? tied : 0;
    marks.sure[1] |= c == 1 ? sure : 0;
    marks.tied[1] |= c == 1 ? tied : 0;
  }
  return marks;
}

// Numbers of marks of a class: sure in the low half, tied in the high one.
DEVICE uint64_t pack(const Marks& marks, int c) {
  return (uint64_t)__popc(marks.tied[c]) << 32 | (unsigned)__popc(marks.sure[c]);
}

KERNEL(256)
sample_anchors_count(const int* RESTRICT labels, const int* RESTRICT image_keys,
                     const int* RESTRICT histograms, uint64_t* RESTRICT block_counts,
                     KeyOrder order, int num_anchors, int batch, int max_positives) {
  SHARED(int, scratch, 32);
  SHARED(uint64_t, wide_scratch, 32);
  const int n = blockIdx.y;
  Draw draws[CLASSES];
  replay(draws, histograms + (int64_t)n * IMAGE_BINS, DIGITS, batch, max_positives, scratch);
  const int64_t first = (int64_t)blockIdx.x * CHUNK + threadIdx.x * ITEMS;
  const Marks marks = mark(draws, labels + (int64_t)n * num_anchors, image_keys + 4 * (int64_t)n,
                           order, first, num_anchors);
#pragma unroll
  for (int c = 0; c < CLASSES; c++) {
    const uint64_t count = block_sum(pack(marks, c), wide_scratch);
    if (threadIdx.x == 0) {
      block_counts[((int64_t)n * gridDim.x + blockIdx.x) * CLASSES + c] = count;
    }
  }
}
EXPORT(sample_anchors_count)

KERNEL(256)
sample_anchors_write(const int* RESTRICT labels, const int* RESTRICT image_keys,
                     const int* RESTRICT histograms, const uint64_t* RESTRICT block_counts,
                     int* RESTRICT idx, int* RESTRICT counts, KeyOrder order, int num_anchors,
                     int batch, int max_positives) {
  SHARED(int, scratch, 32);
  SHARED(uint64_t, wide_scratch, 32);
  const int n = blockIdx.y, thread = threadIdx.x;
  Draw draws[CLASSES];
  replay(draws, histograms + (int64_t)n * IMAGE_BINS, DIGITS, batch, max_positives, scratch);
  const int64_t first = (int64_t)blockIdx.x * CHUNK + thread * ITEMS;
  const Marks marks = mark(draws, labels + (int64_t)n * num_anchors, image_keys + 4 * (int64_t)n,
                           order, first, num_anchors);
  const uint64_t* of_image = block_counts + (int64_t)n * gridDim.x * CLASSES;
  int* slots = idx + (int64_t)n * batch;
#pragma unroll
  for (int c = 0; c < CLASSES; c++) {
    uint64_t before = 0;
    for (int b = thread; b < (int)blockIdx.x; b += THREADS) before += of_image[b * CLASSES + c];
    before = block_sum(before, wide_scratch);
    uint64_t total;
    before += block_exclusive_sum(pack(marks, c), wide_scratch, total);
    int sure = (int)(unsigned)before, tied = (int)(before >> 32);
    const int place = c == 0 ? 0 : draws[0].drawn;
    for (int item = 0; item < ITEMS; item++) {
      const bool is_sure = marks.sure[c] >> item & 1, is_tied = marks.tied[c] >> item & 1;
      if (is_sure || (is_tied && tied < draws[c].room)) {
        slots[place + sure + min(tied, draws[c].room)] = (int)(first + item);
      }
      sure += is_sure;
      tied += is_tied;
    }
  }
  if (blockIdx.x > 0) return;
  const int drawn = draws[0].drawn + draws[1].drawn;
  for (int slot = drawn + thread; slot < batch; slot += THREADS) slots[slot] = -1;
  if (thread == 0) {
    counts[2 * (int64_t)n] = draws[0].drawn;
    counts[2 * (int64_t)n + 1] = drawn;
  }
}
EXPORT(sample_anchors_write)
