// The proposals of each image that survive non-maximum suppression, best first; torchvision's
// filter_proposals from its NMS on.
//
//   boxes            [N, rows, 4]      float  in   decoded proposals
//   scores           [N, rows]         float  in   their scores
//   levels           [rows]            int    in   level of each row
//   idx              [N, rows]         int    in   anchor of each row
//   proposals        [N, capacity, 4]  float  out  survivors, best first
//   proposal_scores  [N, capacity]     float  out  their scores
//   proposal_idx     [N, capacity]     int    out  their anchors
//   counts           [N]               int    out  survivors of each image
//
// Launch: sort, compare, walk, select (for groups of images), and merge; see each kernel.
// Cost: 12 images of 4 x 2,000 + 819 rows: 100M pairs of 20 operations, compute-bound, and 28 MB of
// bit masks, mostly in L2; the walk is latency-bound, 32 steps.
// Numerics: IoU in fp32 with the CPU's operations in its order where the test without a division is
// not decisive, so that decisions are equal.
// Edge cases: rows with a negative or NaN score are ignored.
//
// Passes: sort the rows of each level of an image; compare each with the rows after it, one bit per
// pair; walk the bits, 64 rows at a time; merge the levels. All orders are (score descending, input
// row ascending), and in a group of images (score descending, image ascending, row ascending).
//
// The number and sizes of levels are computed on the device, so they are bounded only by the number
// of rows. The bit mask of a row covers its chunk of 64 and the 32 chunks after it, enough for any
// level of 2,049 rows; pairs farther apart, in a larger level, are compared in the walk.
#include "boxes.cuh"
#include "nms.cuh"
#include "select.cuh"

constexpr int SORT_THREADS = 1024;
constexpr int SORT_CAPACITY = 4096;  // keys sorted in shared memory (32 KB)
constexpr int LEVEL_SLOTS = 8;       // levels of an image processed concurrently
constexpr int BAND = 33;             // mask words per row
constexpr int MASK_TILES = 4;        // mask words that a block of the comparison computes per row
constexpr int COMPARE_THREADS = NMS_CHUNK * MASK_TILES;
constexpr int WALK_THREADS = 32 * (BAND - 1);

// The valid rows of one level: `count` slots from `start` on in the image's sorted rows.
struct Group {
  int start, count;  // start -1: no more groups
};

// Scratch memory. Sorted rows are stored image after image, and within an image group after group,
// levels ascending; each group has space for all rows of its level.
struct Scratch {
  Box* boxes;          // [N, rows]
  uint64_t* keys;      // [N, rows]: rank and row
  uint64_t* kept;      // [N, rows]: keys of a group's survivors from its start on
  int* ends;           // [N, rows]: end of the row's group, -1 in unused slots
  Group* groups;       // [N, rows + LEVEL_SLOTS]
  int* kept_counts;    // [N, rows + LEVEL_SLOTS]
  uint64_t* overlaps;  // [N, chunks, BAND, 64]: bit i of [n, c, w, r]: row 64 c + r overlaps row
                       // 64 (c + w) + i
};

// The rows of a level, and the start of its group.
struct LevelRows {
  int level;
  int start;  // rows of lower levels
  int size;   // 0: there is no such level
};

// The lowest level above `previous`, or with `any` the lowest of all.
DEVICE LevelRows next_level(const int* RESTRICT levels, int rows, LevelRows previous, bool any,
                            int* sums, int* lowest) {
  if (threadIdx.x == 0) *lowest = 0x7fffffff;
  __syncthreads();
  int own = 0x7fffffff, own_found = 0;
  for (int i = threadIdx.x; i < rows; i += SORT_THREADS) {
    const int level = levels[i];
    if (!any && level <= previous.level) continue;
    own = min(own, level);
    own_found = 1;
  }
  if (own_found) atomicMin(lowest, own);
  const bool found = __syncthreads_or(own_found);
  const int level = *lowest;
  int size = 0;
  for (int i = threadIdx.x; i < rows; i += SORT_THREADS) size += levels[i] == level;
  // The barriers in block_sum also protect `lowest` until all threads have read it.
  size = block_sum(size, sums);
  return {level, previous.start + previous.size, found ? size : 0};
}

// Sorts the valid rows of each level. A block processes every LEVEL_SLOTS-th level of an image;
// grid: LEVEL_SLOTS, N.
KERNEL(SORT_THREADS)
nms_proposals_sort(const Box* RESTRICT boxes, const float* RESTRICT scores,
                   const int* RESTRICT levels, const Scratch scratch, int rows) {
  SHARED(uint64_t, shared_keys, SORT_CAPACITY);
  SHARED(int, sums, 32);
  SHARED(int, lowest, 1);
  SHARED(int, list_len, 1);
  const uint64_t image = (uint64_t)blockIdx.y * rows;
  Group* groups = scratch.groups + (uint64_t)blockIdx.y * (rows + LEVEL_SLOTS);
  LevelRows own = next_level(levels, rows, {0, 0, 0}, true, sums, lowest);
  for (int l = 0; own.size > 0; l++) {
    if (l % LEVEL_SLOTS == (int)blockIdx.x) {
      int count = 0;
      for (int i = threadIdx.x; i < rows; i += SORT_THREADS)
        count += levels[i] == own.level && scores[image + i] >= 0.0f;
      count = block_sum(count, sums);
      uint64_t* keys = count <= SORT_CAPACITY ? shared_keys : scratch.keys + image + own.start;
      if (threadIdx.x == 0) *list_len = 0;
      __syncthreads();
      for (int first = 0; first < rows; first += SORT_THREADS) {
        const int i = first + (int)threadIdx.x;
        const bool counts = i < rows && levels[i] == own.level && scores[image + i] >= 0.0f;
        const int place = take_place(counts, list_len);
        if (counts) keys[place] = rank_key(rank_bits(scores[image + i]), i);
      }
      block_sort(keys, count);
      for (int i = threadIdx.x; i < own.size; i += SORT_THREADS) {
        const uint64_t at = image + own.start + i;
        scratch.ends[at] = i < count ? own.start + count : -1;
        if (i < count) {
          scratch.keys[at] = keys[i];
          scratch.boxes[at] = boxes[image + key_index(keys[i])];
        }
      }
      if (threadIdx.x == 0) groups[l] = {own.start, count};
      __syncthreads();
    }
    own = next_level(levels, rows, own, false, sums, lowest);
    // One block marks the end of the list of groups.
    if (own.size == 0 && threadIdx.x == 0 && blockIdx.x == 0) groups[l + 1] = {-1, 0};
  }
  if (rows == 0 && threadIdx.x == 0 && blockIdx.x == 0) groups[0] = {-1, 0};
}

// Compares rows. A thread computes one mask word: one row against a chunk of 64. Grid: chunks of
// rows, BAND / MASK_TILES, N.
KERNEL(COMPARE_THREADS)
nms_proposals_compare(const Scratch scratch, int rows, float threshold, int plus_one) {
  SHARED(Box, boxes, NMS_CHUNK * MASK_TILES);
  SHARED(float, areas, COMPARE_THREADS);
  SHARED(int, ends, COMPARE_THREADS);
  const uint64_t image = (uint64_t)blockIdx.z * rows;
  const int chunk = blockIdx.x, word = blockIdx.y * MASK_TILES + threadIdx.x / NMS_CHUNK;
  const int own_place = threadIdx.x % NMS_CHUNK, row = chunk * NMS_CHUNK + own_place;
  const int first_column = (chunk + blockIdx.y * MASK_TILES) * NMS_CHUNK;
  const int end = row < rows ? scratch.ends[image + row] : -1;
  // No group spans these rows and columns: the words are never read.
  if (!__syncthreads_or(end > first_column)) return;

  const int column = first_column + (int)threadIdx.x;
  const int column_end = column < rows ? scratch.ends[image + column] : -1;
  const Box zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const Box column_box = column_end >= 0 ? scratch.boxes[image + column] : zero;
  boxes[threadIdx.x] = column_box;
  areas[threadIdx.x] = box_area(column_box, plus_one);
  ends[threadIdx.x] = column_end;
  __syncthreads();
  if (word >= BAND) return;

  unsigned halves[2] = {0, 0};
  const int first = (int)threadIdx.x / NMS_CHUNK * NMS_CHUNK;
  if (end > first_column + first) {
    const Box own = scratch.boxes[image + row];
    const float own_area = box_area(own, plus_one);
    for (int h = 0; h < 2; h++) {
      for (int i = 0; i < 32; i++) {
        const int c = first + 32 * h + i;
        // Rows with the same end are in the same group.
        const bool over = ends[c] == end && first_column + c != row &&
                          box_iou_above(own, own_area, boxes[c], areas[c], plus_one, threshold);
        halves[h] |= (unsigned)over << i;
      }
    }
  }
  const uint64_t chunks = gridDim.x;
  uint64_t* words = scratch.overlaps + ((blockIdx.z * chunks + chunk) * BAND + word) * NMS_CHUNK;
  words[own_place] = (uint64_t)halves[1] << 32 | halves[0];
}

// Marks the rows of the group beyond the band that are suppressed by the kept rows of a chunk.
DEVICE void suppress_far(const Box* RESTRICT boxes, int chunk, uint64_t kept, int end,
                         uint64_t* removed, float threshold, int plus_one) {
  for (int row = (chunk + BAND) * NMS_CHUNK + (int)threadIdx.x; row < end; row += WALK_THREADS) {
    const Box b = boxes[row];
    const float area = box_area(b, plus_one);
    bool over = false;
    for (uint64_t left = kept; left != 0 && !over; left &= left - 1) {
      const Box by = boxes[chunk * NMS_CHUNK + __ffsll((long long)left) - 1];
      over = box_iou_above(by, box_area(by, plus_one), b, area, plus_one, threshold);
    }
    if (over) atomicOr(&removed[row / NMS_CHUNK], 1ull << row % NMS_CHUNK);
  }
}

// The mask words of rows `lane` and `lane + 32` of a chunk.
struct Words {
  uint64_t low, high;
};
DEVICE Words load_words(const uint64_t* RESTRICT words, int chunk, int word) {
  const uint64_t* own = words + ((uint64_t)chunk * BAND + word) * NMS_CHUNK + threadIdx.x % 32;
  return {own[0], own[32]};
}

// Walks the groups in chunks of 64 rows: one warp decides which rows of the chunk are kept, then
// each warp removes the rows that they suppress in one of the later chunks. A block processes every
// LEVEL_SLOTS-th group of an image; grid: LEVEL_SLOTS, N. Dynamic shared memory: one bit per row.
KERNEL(WALK_THREADS)
nms_proposals_walk(const Scratch scratch, int rows, int max_kept, float threshold, int plus_one) {
  DYNAMIC_SHARED(dynamic);
  SHARED(uint64_t, survivors, 1);
  uint64_t* removed = (uint64_t*)dynamic;
  const int chunks = ceil_div(rows, NMS_CHUNK);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint64_t image = (uint64_t)blockIdx.y * rows, n = blockIdx.y;
  const Group* groups = scratch.groups + n * (rows + LEVEL_SLOTS);
  const uint64_t* words = scratch.overlaps + n * chunks * BAND * NMS_CHUNK;
  // The list of groups has only an end mark, so the loop also visits the groups of other blocks.
  for (int g = 0; groups[g].start >= 0; g++) {
    if (g % LEVEL_SLOTS != (int)blockIdx.x) continue;
    const int start = groups[g].start, end = start + groups[g].count;
    const int last_chunk = (end - 1) / NMS_CHUNK;
    for (int c = threadIdx.x; c < chunks; c += WALK_THREADS) removed[c] = 0;
    __syncthreads();
    int total = 0;
    // Chunks are processed one after the other, so load latencies would add up: a warp loads its
    // mask words before it is known which rows are kept, and warp 0 loads the words that compare
    // the next chunk with itself one step ahead.
    Words rivals;
    if (warp == 0) rivals = load_words(words, start / NMS_CHUNK, 0);
    for (int c = start / NMS_CHUNK; c * NMS_CHUNK < end && total < max_kept; c++) {
      const int target = c + 1 + warp;
      Words over{0, 0};
      if (target <= last_chunk) over = load_words(words, c, 1 + warp);
      if (warp == 0) {
        const Words own = rivals;
        if (c < last_chunk) rivals = load_words(words, c + 1, 0);
        const int first = c * NMS_CHUNK;
        const uint64_t inside = low_bits(end - first) & ~low_bits(max(start - first, 0));
        const uint64_t kept = nms_resolve(inside & ~removed[c], own.low & low_bits(lane),
                                          own.high & low_bits(32 + lane));
        if (lane == 0) *survivors = kept;
      }
      __syncthreads();
      const uint64_t kept = *survivors;
      if (threadIdx.x < NMS_CHUNK && kept >> threadIdx.x & 1) {
        const int place = total + __popcll(kept & low_bits(threadIdx.x));
        if (place < max_kept)
          scratch.kept[image + start + place] = scratch.keys[image + c * NMS_CHUNK + threadIdx.x];
      }
      total += __popcll(kept);
      uint64_t gone = (kept >> lane & 1 ? over.low : 0) | (kept >> (lane + 32) & 1 ? over.high : 0);
      for (int offset = 16; offset > 0; offset /= 2)
        gone |= __shfl_xor_sync(ALL_LANES, gone, offset);
      if (lane == 0 && target <= last_chunk) removed[target] |= gone;
      suppress_far(scratch.boxes + image, c, kept, end, removed, threshold, plus_one);
      __syncthreads();
    }
    if (threadIdx.x == 0) scratch.kept_counts[n * (rows + LEVEL_SLOTS) + g] = min(total, max_kept);
  }
}

// Survivors that a thread of the selection reads at once; a block then reads a level's 2,000 in one
// round.
constexpr int IN_FLIGHT = 8;

// Survivors of a group of images, from which the best are selected.
struct ImageGroup {
  const Scratch& scratch;
  int rows, images;

  // Calls f(key, image of the group) for each survivor, spread over the block's threads.
  template <typename F>
  DEVICE void each(F f) const {
    for (int i = 0; i < images; i++) {
      const uint64_t n = (uint64_t)blockIdx.x * images + i;
      const Group* groups = scratch.groups + n * (rows + LEVEL_SLOTS);
      const int* counts = scratch.kept_counts + n * (rows + LEVEL_SLOTS);
      for (int g = 0; groups[g].start >= 0; g++) {
        const uint64_t* kept = scratch.kept + n * rows + groups[g].start;
        for (int first = threadIdx.x; first < counts[g]; first += IN_FLIGHT * SELECT_THREADS) {
          // A single block reads all survivors, so it keeps many loads in flight.
          uint64_t keys[IN_FLIGHT];
#pragma unroll
          for (int l = 0; l < IN_FLIGHT; l++) {
            const int k = first + l * SELECT_THREADS;
            if (k < counts[g]) keys[l] = kept[k];
          }
#pragma unroll
          for (int l = 0; l < IN_FLIGHT; l++)
            if (first + l * SELECT_THREADS < counts[g]) f(keys[l], i);
        }
      }
    }
  }

  // Radix select: finds the `need`-th smallest of the values `v` that `value(key, image, v)`
  // assigns to survivors, without those for which it returns false. `ties` is the number of values
  // equal to the result.
  template <typename F>
  DEVICE Boundary boundary(int need, F value, unsigned* histogram, int* sums, int& ties) const {
    Boundary found{0, need};
    for (int pass = 0; pass < RADIX_PASSES; pass++) {
      const int shift = radix_shift(pass), bits = pass == RADIX_PASSES - 1 ? 10 : 11;
      for (int bin = threadIdx.x; bin < DIGITS; bin += SELECT_THREADS) histogram[bin] = 0;
      __syncthreads();
      const unsigned prefix = found.prefix;
      each([&](uint64_t key, int image) {
        unsigned v;
        if (!value(key, image, v)) return;
        if ((uint64_t)v >> (shift + bits) != (pass == 0 ? 0 : prefix)) return;
        atomicAdd(&histogram[v >> shift & ((1u << bits) - 1)], 1u);
      });
      __syncthreads();
      found = radix_pick(found, histogram, pass, sums);
      ties = (int)histogram[found.prefix & ((1u << bits) - 1)];
      __syncthreads();
    }
    return found;
  }
};

// Keeps only the best `keep` survivors of each group of images, by reducing the counts of their
// levels. Grid: groups of images.
KERNEL(SELECT_THREADS)
nms_proposals_cut(const Scratch scratch, int rows, int images, int keep) {
  SHARED(unsigned, histogram, DIGITS);
  SHARED(int, sums, 32);
  const ImageGroup group{scratch, rows, images};
  int total = 0;
  group.each([&](uint64_t, int) { total++; });
  if (block_sum(total, sums) <= keep) return;

  int ties = 0;
  const auto rank = [](uint64_t key, int, unsigned& v) {
    v = (unsigned)(key >> 32);
    return true;
  };
  const Boundary best = group.boundary(keep, rank, histogram, sums, ties);
  // If not all survivors with the lowest kept score fit, the first ones in order of image and row
  // are kept, up to place `last`.
  unsigned last = 0xffffffffu;
  if (best.need < ties) {
    const auto place = [rows, best](uint64_t key, int image, unsigned& v) {
      v = (unsigned)image * (unsigned)rows + key_index(key);
      return (unsigned)(key >> 32) == best.prefix;
    };
    last = group.boundary(best.need, place, histogram, sums, ties).prefix;
  }
  for (int i = 0; i < images; i++) {
    const uint64_t n = (uint64_t)blockIdx.x * images + i, before = (uint64_t)i * (uint64_t)rows;
    const uint64_t places = (uint64_t)last + 1;
    const uint64_t end = rank_key(best.prefix, 0) + (places > before ? places - before : 0);
    const Group* groups = scratch.groups + n * (rows + LEVEL_SLOTS);
    int* counts = scratch.kept_counts + n * (rows + LEVEL_SLOTS);
    for (int g = 0; groups[g].start >= 0; g++)
      if (g % SELECT_THREADS == (int)threadIdx.x)
        counts[g] = keys_below(scratch.kept + n * rows + groups[g].start, counts[g], end);
  }
}

// Writes the survivors of an image to the output: by rank among all of them (by_image), or level
// after level. One thread per slot of the sorted rows and of the output; grid: blocks of these
// threads, N.
KERNEL(256)
nms_proposals_merge(const Box* RESTRICT boxes, const float* RESTRICT scores,
                    const int* RESTRICT idx, const Scratch scratch, Box* RESTRICT proposals,
                    float* RESTRICT proposal_scores, int* RESTRICT proposal_idx,
                    int* RESTRICT counts, int rows, int capacity, int by_image) {
  const uint64_t n = blockIdx.y, image = n * rows;
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  const Group* groups = scratch.groups + n * (rows + LEVEL_SLOTS);
  const int* kept_counts = scratch.kept_counts + n * (rows + LEVEL_SLOTS);
  const uint64_t* kept = scratch.kept + image;
  int total = 0, own = -1, before = 0;
  for (int g = 0; groups[g].start >= 0; g++) {
    const int first = groups[g].start;
    if (place >= first && place < first + kept_counts[g]) {
      own = g;
      before = total + place - first;
    }
    total += kept_counts[g];
  }
  total = min(total, capacity);
  if (place == 0) counts[n] = total;
  if (place >= total && place < capacity) {
    proposals[n * capacity + place] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    proposal_scores[n * capacity + place] = 0.0f;
    proposal_idx[n * capacity + place] = -1;
  }
  if (own < 0) return;
  const uint64_t key = kept[place];
  int rank = before;
  if (by_image) {
    rank = 0;
    for (int g = 0; groups[g].start >= 0 && rank < capacity; g++)
      rank += keys_below(kept + groups[g].start, kept_counts[g], key);
  }
  if (rank >= capacity) return;
  const uint64_t from = image + key_index(key), to = n * capacity + rank;
  proposals[to] = boxes[from];
  proposal_scores[to] = scores[from];
  proposal_idx[to] = idx[from];
}
