// Samples the positives and the negatives with the smallest (key, index), like boxes/sampling.rs.
//
// The last sampled key is found by radix select: four histograms of one byte each, from the top, of
// the keys that share the bytes found before. Counts are integers, so the order of addition does
// not matter.
#pragma once
#include "philox.cuh"
#include "reduce.cuh"

constexpr int BINS = 256;   // values of a byte of a key
constexpr int DIGITS = 4;   // bytes of a key
constexpr int CLASSES = 2;  // positives are class 0, negatives class 1

// The class that a label is sampled in; CLASSES if none.
DEVICE int class_of(int label) { return label > 0 ? 0 : label == 0 ? 1 : CLASSES; }

// Sum over the threads before this one in a one-dimensional block of full warps; `total` is the sum
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

// The sampled part of a class: keys below `key`, and the smallest `room` of the keys that share the
// bytes of `key` found so far. Once all bytes are found, the latter keys are equal, and the first
// `room` by index are sampled.
struct Draw {
  unsigned key;
  int room;
  int all;    // all elements are sampled, regardless of keys
  int drawn;  // number of elements
};
static_assert(sizeof(Draw) == 16, "kept in scratch memory");

// Before the first byte: `limit` of `count` elements.
DEVICE Draw draw_of(int count, int limit) {
  const int drawn = min(count, limit);
  return {0, drawn, (int)(count <= limit), drawn};
}

// The draw of a class, by value: dynamic indexing would put the array in local memory.
DEVICE Draw draw_for(const Draw (&draws)[CLASSES], int c) { return c == 0 ? draws[0] : draws[1]; }

// At most `max_positives`, and negatives up to a total of `batch`.
DEVICE void begin_draws(Draw (&draws)[CLASSES], const int (&counts)[CLASSES], int batch,
                        int max_positives) {
  draws[0] = draw_of(counts[0], max_positives);
  draws[1] = draw_of(counts[1], max(batch - draws[0].drawn, 0));
}

// True if more bytes of the key must be found: neither all nor none is sampled.
DEVICE bool undecided(const Draw& draw) { return !draw.all && draw.room > 0; }

// True if `key` counts in the histogram of byte `digit` (0 is the top one).
DEVICE bool shares_bytes(const Draw& draw, unsigned key, int digit) {
  return digit == 0 || (undecided(draw) && (key ^ draw.key) >> (32 - 8 * digit) == 0);
}
DEVICE unsigned byte_of(unsigned key, int digit) { return key >> (24 - 8 * digit) & 255u; }

// Finds byte `digit` of the last sampled key from the histogram of the keys that share the bytes
// before. All threads of a block of at least BINS call it with the same draw; `scratch` holds 32
// ints.
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

// With all bytes found: sampled for sure, or sampled if among the first `room` equal keys.
DEVICE bool surely_drawn(const Draw& draw, unsigned key) { return draw.all || key < draw.key; }
DEVICE bool ties(const Draw& draw, unsigned key) { return undecided(draw) && key == draw.key; }
