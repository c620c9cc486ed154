// Samples the anchors of each image for the RPN losses: of each class those with the smallest (key,
// index).
//
//   labels        [N, A]                      int     in       1 positive, 0 negative, -1 ignored
//   image_keys    [N, 4]                      int     in       random number keys of the image
//   idx           [N, batch]                  int     out      positives, negatives, then -1
//   counts        [N, 2]                      int     out      sampled positives, all samples
//   histograms    [N, DIGITS, CLASSES, BINS]  int     scratch  bytes of the keys
//   states        [N, DIGITS, CLASSES]        Draw    scratch  the selection after each byte
//   block_counts  [N, blocks, CLASSES]        uint64  scratch  samples in each block
//   prefixes      [N, blocks * CHUNK]         uint16  scratch  class and top 14 bits of a key
//
// Launch: clear; keys; a histogram for each remaining byte of the keys; count; write: blocks of 256
// threads with CHUNK anchors of an image (grid y).
// Cost: Philox once, about 80 instructions per key, then 2 bytes per anchor and pass, 6 MB at 12
// images.
// Numerics: integers; the CPU's result.
// Edge cases: equal keys are ordered by index; without anchors nothing is sampled.
//
// The selection is a radix select over all blocks of an image. Every block advances it by one byte
// redundantly (a block scan), and the first one stores it for the next launch, so no block has to
// wait. Keys are recomputed only for anchors whose prefix (class and top bits of the key) does not
// decide if they are sampled.
#include "sampling.cuh"

constexpr int THREADS = 256;
constexpr int ITEMS = 16;  // anchors per thread, in order
constexpr int CHUNK = THREADS * ITEMS;
constexpr int IMAGE_BINS = DIGITS * CLASSES * BINS;

KERNEL(256)
sample_anchors_clear(int* RESTRICT histograms, uint64_t len) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < len) histograms[i] = 0;
}

// A prefix holds the class of an anchor and the top bits of its key. For most anchors it is enough
// to decide if they are sampled.
constexpr int PREFIX_BITS = 14, PREFIX_SHIFT = 32 - PREFIX_BITS;
constexpr unsigned UNDRAWN = CLASSES << PREFIX_BITS;

DEVICE uint16_t prefix_of(int c, unsigned key) {
  return (uint16_t)(c << PREFIX_BITS | key >> PREFIX_SHIFT);
}
// The part of the key that is in the prefix.
DEVICE unsigned prefix_key(unsigned prefix) { return prefix << PREFIX_SHIFT; }

// The parts of the scratch memory of one image.
struct Scratch {
  int* histograms;
  Draw* states;
  uint64_t* block_counts;
  uint16_t* prefixes;
};
static_assert(sizeof(Scratch) == 32, "four pointers");

DEVICE Scratch of_image(Scratch all, int n) {
  const int64_t blocks = gridDim.x;
  return {all.histograms + (int64_t)n * IMAGE_BINS, all.states + (int64_t)n * DIGITS * CLASSES,
          all.block_counts + n * blocks * CLASSES, all.prefixes + n * blocks * CHUNK};
}

// Parameters of the op.
struct Rule {
  uint64_t seed;
  int anchors, batch, max_positives;
};
static_assert(sizeof(Rule) == 24, "as the launch lays it out");

// Advances the selection of the previous launch by byte `digit`, and stores it for the next.
DEVICE void advance(Draw (&draws)[CLASSES], const Scratch& in, const Rule& rule, int digit,
                    int* scratch) {
  if (digit == 0) {
    int counts[CLASSES];
#pragma unroll  // the draws stay in registers
    for (int c = 0; c < CLASSES; c++) {
      counts[c] = block_sum(in.histograms[c * BINS + threadIdx.x], scratch);
    }
    begin_draws(draws, counts, rule.batch, rule.max_positives);
  }
#pragma unroll
  for (int c = 0; c < CLASSES; c++) {
    if (digit > 0) draws[c] = in.states[(digit - 1) * CLASSES + c];
    narrow(draws[c], in.histograms + (digit * CLASSES + c) * BINS, digit, scratch);
    if (blockIdx.x == 0 && threadIdx.x == 0) in.states[digit * CLASSES + c] = draws[c];
  }
}

// Adds a block's histograms of byte `digit` to the image's.
DEVICE void add_histograms(const int* own, const Scratch& in, int digit) {
  __syncthreads();
  for (int c = 0; c < CLASSES; c++) {
    const int count = own[c * BINS + threadIdx.x];
    if (count > 0) atomicAdd(&in.histograms[(digit * CLASSES + c) * BINS + threadIdx.x], count);
  }
}

// Counts the first byte of every key, and writes the prefixes.
KERNEL(256)
sample_anchors_keys(const int* RESTRICT labels, const int* RESTRICT image_keys, Scratch all,
                    Rule rule) {
  SHARED(int, own, CLASSES* BINS);
  const int n = blockIdx.y, thread = threadIdx.x;
  const Scratch in = of_image(all, n);
  const int* image_key = image_keys + 4 * (int64_t)n;
  const int* image_labels = labels + (int64_t)n * rule.anchors;
  for (int c = 0; c < CLASSES; c++) own[c * BINS + thread] = 0;
  __syncthreads();
#pragma unroll 4
  for (int item = 0; item < ITEMS; item++) {
    const int64_t i = (int64_t)blockIdx.x * CHUNK + item * THREADS + thread;
    const int c = i < rule.anchors ? class_of(image_labels[i]) : CLASSES;
    in.prefixes[i] = (uint16_t)UNDRAWN;
    if (c == CLASSES) continue;
    const unsigned key = philox_keyed(rule.seed, image_key, PURPOSE_ANCHORS, (unsigned)i);
    in.prefixes[i] = prefix_of(c, key);
    atomicAdd(&own[c * BINS + byte_of(key, 0)], 1);
  }
  add_histograms(own, in, 0);
}

// Counts byte `digit`, at least 1, of the keys whose earlier bytes equal those of the selection.
KERNEL(256)
sample_anchors_histogram(const int* RESTRICT image_keys, Scratch all, Rule rule, int digit) {
  SHARED(int, scratch, 32);
  SHARED(int, own, CLASSES* BINS);
  const int n = blockIdx.y, thread = threadIdx.x;
  const Scratch in = of_image(all, n);
  const int* image_key = image_keys + 4 * (int64_t)n;
  Draw draws[CLASSES];
  advance(draws, in, rule, digit - 1, scratch);
  for (int c = 0; c < CLASSES; c++) own[c * BINS + thread] = 0;
  __syncthreads();
  const unsigned seen = digit == 1 ? 0xff000000u : 0xffffffffu << PREFIX_SHIFT;
#pragma unroll 4
  for (int item = 0; item < ITEMS; item++) {
    const int64_t i = (int64_t)blockIdx.x * CHUNK + item * THREADS + thread;
    const unsigned prefix = in.prefixes[i];
    const int c = (int)(prefix >> PREFIX_BITS);
    const Draw draw = draw_for(draws, c);
    if (c == CLASSES || ((prefix_key(prefix) ^ draw.key) & seen) != 0) continue;
    const unsigned key = philox_keyed(rule.seed, image_key, PURPOSE_ANCHORS, (unsigned)i);
    if (shares_bytes(draw, key, digit)) atomicAdd(&own[c * BINS + byte_of(key, digit)], 1);
  }
  add_histograms(own, in, digit);
}

// Anchors of a thread, by class: bit i is the thread's i-th anchor. Only the first of the tied
// anchors are sampled.
struct Marks {
  unsigned sure[CLASSES], tied[CLASSES];
};

DEVICE Marks mark(const Draw (&draws)[CLASSES], const Scratch& in, const Rule& rule,
                  const int* image_key, int64_t first) {
  Marks marks = {};
  unsigned open[CLASSES] = {};  // the full key is needed
  const uint4* source = (const uint4*)(in.prefixes + first);
  const uint4 low = source[0], high = source[1];
  const unsigned words[ITEMS / 2] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int item = 0; item < ITEMS; item++) {
    const unsigned prefix = words[item / 2] >> 16 * (item % 2) & 0xffffu, key = prefix_key(prefix);
    const unsigned c = prefix >> PREFIX_BITS;
    const Draw draw = draw_for(draws, (int)c);
    const bool is_open = undecided(draw) && (key ^ draw.key) >> PREFIX_SHIFT == 0;
    const unsigned sure = (unsigned)(!is_open && surely_drawn(draw, key)) << item;
    marks.sure[0] |= c == 0 ? sure : 0;
    marks.sure[1] |= c == 1 ? sure : 0;
    open[0] |= (unsigned)(is_open && c == 0) << item;
    open[1] |= (unsigned)(is_open && c == 1) << item;
  }
#pragma unroll
  for (int c = 0; c < CLASSES; c++) {
    for (unsigned left = open[c]; left != 0; left &= left - 1) {
      const unsigned bit = left & (0u - left), i = (unsigned)first + (unsigned)__ffs((int)left) - 1;
      const unsigned key = philox_keyed(rule.seed, image_key, PURPOSE_ANCHORS, i);
      marks.sure[c] |= surely_drawn(draws[c], key) ? bit : 0;
      marks.tied[c] |= ties(draws[c], key) ? bit : 0;
    }
  }
  return marks;
}

// Number of marked anchors of a class: `sure` in the low half, `tied` in the high half.
DEVICE uint64_t pack(const Marks& marks, int c) {
  return (uint64_t)__popc(marks.tied[c]) << 32 | (unsigned)__popc(marks.sure[c]);
}

KERNEL(256)
sample_anchors_count(const int* RESTRICT image_keys, Scratch all, Rule rule) {
  SHARED(int, scratch, 32);
  SHARED(uint64_t, wide_scratch, 32);
  const Scratch in = of_image(all, blockIdx.y);
  Draw draws[CLASSES];
  advance(draws, in, rule, DIGITS - 1, scratch);
  const int64_t first = (int64_t)blockIdx.x * CHUNK + threadIdx.x * ITEMS;
  const Marks marks = mark(draws, in, rule, image_keys + 4 * (int64_t)blockIdx.y, first);
#pragma unroll
  for (int c = 0; c < CLASSES; c++) {
    const uint64_t count = block_sum(pack(marks, c), wide_scratch);
    if (threadIdx.x == 0) in.block_counts[blockIdx.x * CLASSES + c] = count;
  }
}

KERNEL(256)
sample_anchors_write(const int* RESTRICT image_keys, Scratch all, Rule rule, int* RESTRICT idx,
                     int* RESTRICT counts) {
  SHARED(uint64_t, wide_scratch, 32);
  const int n = blockIdx.y, thread = threadIdx.x, batch = rule.batch;
  const Scratch in = of_image(all, n);
  Draw draws[CLASSES];
#pragma unroll
  for (int c = 0; c < CLASSES; c++) draws[c] = in.states[(DIGITS - 1) * CLASSES + c];
  const int64_t first = (int64_t)blockIdx.x * CHUNK + thread * ITEMS;
  const Marks marks = mark(draws, in, rule, image_keys + 4 * (int64_t)n, first);
  int* slots = idx + (int64_t)n * batch;
#pragma unroll
  for (int c = 0; c < CLASSES; c++) {
    uint64_t before = 0;
    for (int b = thread; b < (int)blockIdx.x; b += THREADS)
      before += in.block_counts[b * CLASSES + c];
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
