// The anchors with the highest logits of each level, in order; torchvision's _get_top_n_idx, with
// ties going to the lower index.
//
//   logits      [N, len]                half/float  in       of each level
//   idx         [N, slots]              int         out      anchors, best first per level
//   level_of    [slots]                 int         out      level of each slot
//   histograms  [RADIX_PASSES, DIGITS]  uint        scratch  of each image and level
//   counts      [blocks, 2]             int         scratch  counts above and at the boundary
//   keys        [capacity]              uint64      scratch  keys to be sorted
//
// Launch: blocks of 256 over SPAN logits, levels, images; the sort uses one block of 1,024 per
// level and image; grids follow from shapes.
// Cost: 12 images of 800x1344, k = 2,000: 3.2M logits read four times from L2 (6.4 MB each), then
// 66 sorting steps; bound by the latency of 6 launches.
// Numerics: exact.
// Edge cases: NaN ranks with minus infinity; any number of ties goes to the lower indices.
//
// A level that fits the sort is sorted directly. In a larger one, histograms of 11-bit digits find
// the k-th rank (two passes for half, whose ranks differ only in their upper 19 bits, three for
// float), then its k keys are gathered in order and sorted. Each launch writes the slots of its
// levels.
#include "select.cuh"

constexpr int MAX_LEVELS = 8;
constexpr int SORT_THREADS = 1024;
constexpr int SORT_CAPACITY = 4096;  // keys sorted in shared memory (32 KB)
constexpr int VECTOR = 8;            // logits that a thread loads at a time
constexpr int ROUNDS = 4;
constexpr int TURN = SELECT_THREADS * VECTOR;
constexpr int SPAN = TURN * ROUNDS;  // logits per block

// Some levels of the pyramid.
template <typename T>
struct Levels {
  const T* logits[MAX_LEVELS];
  int len[MAX_LEVELS];      // anchors per image
  int kept[MAX_LEVELS];     // anchors kept in the output
  int first[MAX_LEVELS];    // index of its first anchor among those of all levels
  int slot[MAX_LEVELS];     // first slot in a row of the output
  int selects[MAX_LEVELS];  // 1: too large to be sorted directly
  int num_levels;
  int level;   // index of the first level
  int slots;   // slots in a row of the output
  int blocks;  // blocks of SPAN logits in the largest level that is not sorted directly
};
static_assert(sizeof(Levels<half>) == 28 * MAX_LEVELS + 16, "as the launch lays it out");

// Scratch memory, for each image and level.
struct Scratch {
  unsigned* histograms;  // [RADIX_PASSES][DIGITS]
  int2* counts;          // [blocks]: logits of a block above the boundary, and at it
  uint64_t* keys;        // [capacity]
  uint64_t capacity;
};

// Eight logits from `i` on; returns how many of them exist.
DEVICE int load(const half* logits, int i, int len, float (&out)[VECTOR]) {
  if (len % VECTOR == 0 && i < len) {
    const uint4 bits = *(const uint4*)(logits + i);
    const half* values = (const half*)&bits;
    for (int v = 0; v < VECTOR; v++) out[v] = __half2float(values[v]);
    return VECTOR;
  }
  const int count = min(VECTOR, max(0, len - i));
  for (int v = 0; v < VECTOR; v++) out[v] = v < count ? __half2float(logits[i + v]) : 0.0f;
  return count;
}
DEVICE int load(const float* logits, int i, int len, float (&out)[VECTOR]) {
  const int count = min(VECTOR, max(0, len - i));
  for (int v = 0; v < VECTOR; v++) out[v] = v < count ? logits[i + v] : 0.0f;
  return count;
}

template <typename T>
struct Passes;
template <>
struct Passes<half> {
  static constexpr int COUNT = 2;
};
template <>
struct Passes<float> {
  static constexpr int COUNT = 3;
};

// The first `passes` digits of the `kept`-th rank, from the histograms of these digits.
DEVICE Boundary boundary_after(int passes, const unsigned* histograms, int kept, int* sums) {
  Boundary boundary{0, kept};
  for (int pass = 0; pass < passes; pass++)
    boundary = radix_pick(boundary, histograms + pass * DIGITS, pass, sums);
  return boundary;
}

// The logits that a block of the selection processes.
template <typename T>
struct Place {
  const T* logits;
  int level, len, first;
  uint64_t problem;  // image and level
  bool idle;
  DEVICE Place(const Levels<T>& levels)
      : level(blockIdx.y), len(levels.len[blockIdx.y]), first(blockIdx.x * SPAN) {
    logits = levels.logits[level] + (uint64_t)blockIdx.z * len;
    problem = (uint64_t)blockIdx.z * levels.num_levels + level;
    idle = !levels.selects[level] || first >= len;
  }
  DEVICE int at(int round) const { return first + round * TURN + (int)threadIdx.x * VECTOR; }
};

// Zeros the histograms and writes the level of each output slot.
template <typename T>
DEVICE void begin(const Levels<T>& levels, Scratch scratch, int* RESTRICT level_of,
                  uint64_t num_bins) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < num_bins) scratch.histograms[i] = 0;
  for (int l = 0; l < levels.num_levels; l++) {
    const uint64_t slot = levels.slot[l];
    if (i >= slot && i < slot + levels.kept[l]) level_of[i] = levels.level + l;
  }
}

// Histogram of digit `pass` of the ranks whose earlier digits equal those of the boundary.
template <typename T>
DEVICE void histogram(const Levels<T>& levels, Scratch scratch, int pass) {
  SHARED(unsigned, bins, DIGITS);
  SHARED(int, sums, 32);
  const Place<T> place(levels);
  if (place.idle) return;
  unsigned* histograms = scratch.histograms + place.problem * RADIX_PASSES * DIGITS;
  const Boundary boundary = boundary_after(pass, histograms, levels.kept[place.level], sums);
  for (int d = threadIdx.x; d < DIGITS; d += SELECT_THREADS) bins[d] = 0;
  __syncthreads();
  // A run of equal digits takes one atomic: at the start of training nearly all digits are equal,
  // and atomics on the same bin are serialized.
  int run = 0;
  unsigned run_digit = 0;
  for (int round = 0; round < ROUNDS; round++) {
    float values[VECTOR];
    const int count = load(place.logits, place.at(round), place.len, values);
    for (int v = 0; v < VECTOR; v++) {
      const unsigned rank = rank_bits(values[v]);
      if (v >= count || (pass > 0 && rank >> radix_shift(pass - 1) != boundary.prefix)) continue;
      const unsigned digit =
          rank >> radix_shift(pass) & (pass == RADIX_PASSES - 1 ? DIGITS / 2 - 1 : DIGITS - 1);
      if (digit != run_digit && run > 0) {
        atomicAdd(&bins[run_digit], (unsigned)run);
        run = 0;
      }
      run_digit = digit;
      run++;
    }
  }
  if (run > 0) atomicAdd(&bins[run_digit], (unsigned)run);
  __syncthreads();
  unsigned* total = histograms + pass * DIGITS;
  for (int d = threadIdx.x; d < DIGITS; d += SELECT_THREADS)
    if (bins[d] != 0) atomicAdd(&total[d], bins[d]);
}

// Counts, among eight logits, how many rank before the boundary (upper half of the word) and at it
// (lower half).
DEVICE int count_both(const float (&values)[VECTOR], int count, int shift, unsigned prefix) {
  int both = 0;
  for (int v = 0; v < VECTOR; v++) {
    const unsigned leading = rank_bits(values[v]) >> shift;
    if (v < count) both += leading < prefix ? 1 << 16 : leading == prefix;
  }
  return both;
}

// Counts the logits of each block before and at the boundary.
template <typename T>
DEVICE void count(const Levels<T>& levels, Scratch scratch) {
  constexpr int PASSES = Passes<T>::COUNT;
  SHARED(int, sums, 32);
  const Place<T> place(levels);
  if (place.idle) return;
  const unsigned* histograms = scratch.histograms + place.problem * RADIX_PASSES * DIGITS;
  const Boundary boundary = boundary_after(PASSES, histograms, levels.kept[place.level], sums);
  int both = 0;
  for (int round = 0; round < ROUNDS; round++) {
    float values[VECTOR];
    const int exist = load(place.logits, place.at(round), place.len, values);
    both += count_both(values, exist, radix_shift(PASSES - 1), boundary.prefix);
  }
  both = block_sum(both, sums);
  if (threadIdx.x == 0)
    scratch.counts[place.problem * levels.blocks + blockIdx.x] =
        make_int2(both >> 16, both & 0xffff);
}

// Gathers the keys before the boundary, then the first of those at it, by index.
template <typename T>
DEVICE void gather(const Levels<T>& levels, Scratch scratch) {
  constexpr int PASSES = Passes<T>::COUNT;
  SHARED(int, sums, 32);
  const Place<T> place(levels);
  if (place.idle) return;
  const unsigned* histograms = scratch.histograms + place.problem * RADIX_PASSES * DIGITS;
  const int kept = levels.kept[place.level], shift = radix_shift(PASSES - 1);
  const Boundary boundary = boundary_after(PASSES, histograms, kept, sums);
  const int2* counts = scratch.counts + place.problem * levels.blocks;
  int over = 0, at = 0;
  for (int b = threadIdx.x; b < (int)blockIdx.x; b += SELECT_THREADS) {
    over += counts[b].x;
    at += counts[b].y;
  }
  over = block_sum(over, sums);
  at = block_sum(at, sums);
  uint64_t* keys = scratch.keys + place.problem * scratch.capacity;
  for (int round = 0; round < ROUNDS; round++) {
    float values[VECTOR];
    const int exist = load(place.logits, place.at(round), place.len, values);
    int total;
    const int both = block_prefix(count_both(values, exist, shift, boundary.prefix), sums, total);
    int own_over = over + (both >> 16), own_at = at + (both & 0xffff);
    for (int v = 0; v < VECTOR; v++) {
      if (v >= exist) break;
      const unsigned rank = rank_bits(values[v]);
      const uint64_t key = rank_key(rank, place.at(round) + v);
      if (rank >> shift < boundary.prefix) {
        keys[own_over++] = key;
      } else if (rank >> shift == boundary.prefix) {
        if (own_at < boundary.need) keys[kept - boundary.need + own_at] = key;
        own_at++;
      }
    }
    over += total >> 16;
    at += total & 0xffff;
  }
}

// Sorts the keys of a level of an image and writes its indices.
template <typename T>
DEVICE void sort(const Levels<T>& levels, Scratch scratch, int* RESTRICT idx) {
  SHARED(uint64_t, shared_keys, SORT_CAPACITY);
  const int level = blockIdx.x, len = levels.len[level], kept = levels.kept[level];
  const uint64_t problem = (uint64_t)blockIdx.y * levels.num_levels + level;
  const T* logits = levels.logits[level] + (uint64_t)blockIdx.y * len;
  uint64_t* own_keys = scratch.keys + problem * scratch.capacity;
  const int count = levels.selects[level] ? kept : len;
  uint64_t* keys = count <= SORT_CAPACITY ? shared_keys : own_keys;
  if (!levels.selects[level]) {
    for (int i = threadIdx.x; i < count; i += SORT_THREADS)
      keys[i] = rank_key(rank_bits((float)logits[i]), i);
  } else if (keys != own_keys) {
    for (int i = threadIdx.x; i < count; i += SORT_THREADS) keys[i] = own_keys[i];
  }
  block_sort(keys, count);
  int* out = idx + (uint64_t)blockIdx.y * levels.slots + levels.slot[level];
  for (int i = threadIdx.x; i < kept; i += SORT_THREADS)
    out[i] = levels.first[level] + (int)key_index(keys[i]);
}

#define TOP_K_KERNELS(T, suffix)                                                                \
  KERNEL(256)                                                                                   \
  top_k_begin_##suffix(const Levels<T> levels, const Scratch scratch, int* level_of,            \
                       uint64_t num_bins) {                                                     \
    begin(levels, scratch, level_of, num_bins);                                                 \
  }                                                                                             \
  KERNEL(SELECT_THREADS)                                                                        \
  top_k_histogram_##suffix(const Levels<T> levels, const Scratch scratch, int pass) {           \
    histogram(levels, scratch, pass);                                                           \
  }                                                                                             \
  KERNEL(SELECT_THREADS) top_k_count_##suffix(const Levels<T> levels, const Scratch scratch) {  \
    count(levels, scratch);                                                                     \
  }                                                                                             \
  KERNEL(SELECT_THREADS) top_k_gather_##suffix(const Levels<T> levels, const Scratch scratch) { \
    gather(levels, scratch);                                                                    \
  }                                                                                             \
  KERNEL(SORT_THREADS)                                                                          \
  top_k_sort_##suffix(const Levels<T> levels, const Scratch scratch, int* idx) {                \
    sort(levels, scratch, idx);                                                                 \
  }

TOP_K_KERNELS(half, f16)
TOP_K_KERNELS(float, f32)
