// Drawing positives and negatives, those with the smallest (key, index): boxes/sampling.rs.
//
// The last key that is drawn is found by radix select: four histograms of one byte each, from the
// top, of the keys that share the bytes found before. Counts are integers, so it does not matter in
// which order they are added.
#pragma once
#include "philox.cuh"
#include "reduce.cuh"

constexpr int BINS = 256;   // values of a byte of a key
constexpr int DIGITS = 4;   // bytes of a key
constexpr int CLASSES = 2;  // positives are drawn as class 0, negatives as class 1

// The class that a label is drawn in; CLASSES if it is not drawn.
DEVICE int class_of(int label) { return label > 0 ? 0 : label == 0 ? 1 : CLASSES; }

// Sum over the threads before this one in a one-dimensional block of full warps; `total` is that
// over all. `scratch` holds 32 values in shared memory; it is free again afterwards.
template <typename T>
DEVICE T block_exclusive_sum(T value, T* scratch, T& total) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  T before = value;
  for (int offset = 1; offset < 32; offset *= 2) {
    const T other = __shfl_up_sync(ALL_LANES, before, offset);
    if (lane >= offset) before += other;
  }
  if (lane == 31) scratch[warp] = before;
  __syncthreads();
  T ends = lane < warps ? scratch[lane] : T(0);
  for (int offset = 1; offset < 32; offset *= 2) {
    const T other = __shfl_up_sync(ALL_LANES, ends, offset);
    if (lane >= offset) ends += other;
  }
  total = __shfl_sync(ALL_LANES, ends, 31);
  const T of_warps = __shfl_sync(ALL_LANES, ends, warp > 0 ? warp - 1 : 0);
  __syncthreads();
  return before - value + (warp > 0 ? of_warps : T(0));
}

// How far a class is drawn: keys below `key`, and the smallest `room` of the keys that share the
// bytes of `key` found so far. In the end these are equal keys, and the first `room` by index.
struct Draw {
  unsigned key;
  int room;
  int all;    // drawn to the last element, whatever the keys
  int drawn;  // number of elements
};
static_assert(sizeof(Draw) == 16, "kept in scratch memory");

// Before the first byte: `limit` of `count` elements.
DEVICE Draw draw_of(int count, int limit) {
  const int drawn = min(count, limit);
  return {0, drawn, (int)(count <= limit), drawn};
}

// The draw of a class, by value: an index that is not known would put the draws into memory.
DEVICE Draw draw_for(const Draw (&draws)[CLASSES], int c) { return c == 0 ? draws[0] : draws[1]; }

// At most `max_positives`, and as many negatives as `batch` has room for.
DEVICE void begin_draws(Draw (&draws)[CLASSES], const int (&counts)[CLASSES], int batch,
                        int max_positives) {
  draws[0] = draw_of(counts[0], max_positives);
  draws[1] = draw_of(counts[1], max(batch - draws[0].drawn, 0));
}

// True if more bytes of the key must be found: neither all nor none is drawn.
DEVICE bool undecided(const Draw& draw) { return !draw.all && draw.room > 0; }

// True if `key` counts in the histogram of byte `digit` (0 is the top one).
DEVICE bool shares_bytes(const Draw& draw, unsigned key, int digit) {
  return digit == 0 || (undecided(draw) && (key ^ draw.key) >> (32 - 8 * digit) == 0);
}
DEVICE unsigned byte_of(unsigned key, int digit) { return key >> (24 - 8 * digit) & 255u; }

// Finds byte `digit` of the last key that is drawn from the histogram of the keys that share the
// bytes before. All threads of a block of at least BINS call it with the same draw; `scratch` holds
// 32 ints.
DEVICE void narrow(Draw& draw, const int* histogram, int digit, int* scratch) {
  if (!undecided(draw)) return;
  const int bin = threadIdx.x, count = bin < BINS ? histogram[bin] : 0;
  int total;
  const int below = block_exclusive_sum(count, scratch, total);
  if (below < draw.room && draw.room <= below + count) {
    scratch[0] = bin;
    scratch[1] = below;
  }
  __syncthreads();
  draw.key |= (unsigned)scratch[0] << (24 - 8 * digit);
  draw.room -= scratch[1];
  __syncthreads();
}

// With all bytes found: drawn for sure, or drawn if among the first `room` of its kind.
DEVICE bool surely_drawn(const Draw& draw, unsigned key) { return draw.all || key < draw.key; }
DEVICE bool ties(const Draw& draw, unsigned key) { return undecided(draw) && key == draw.key; }
