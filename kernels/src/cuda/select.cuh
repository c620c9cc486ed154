// Ranking by score: keys in the order of boxes/rank.rs (score descending, index ascending), prefix
// sums, radix selection by histograms, and a sort within a block.
#pragma once
#include "reduce.cuh"

// Ascending order of these bits is the descending order of scores. Both zeros are equal, and NaN
// ranks like minus infinity.
DEVICE unsigned rank_bits(float score) {
  score = score != score ? -INFINITY : score + 0.0f;
  const unsigned bits = __float_as_uint(score);
  // Flips all bits of negative numbers and sets the sign of others: unsigned order = float order.
  return ~(bits >> 31 ? ~bits : bits | 0x80000000u);
}
// The score passed to rank_bits (0 for minus zero, minus infinity for NaN).
DEVICE float rank_score(unsigned rank) {
  const unsigned ascending = ~rank;
  return __uint_as_float(ascending >> 31 ? ascending & 0x7fffffffu : ~ascending);
}

// A key whose ascending order is (score descending, index ascending).
DEVICE uint64_t rank_key(unsigned rank, unsigned index) { return (uint64_t)rank << 32 | index; }
DEVICE unsigned key_index(uint64_t key) { return (unsigned)key; }
DEVICE float key_score(uint64_t key) { return rank_score((unsigned)(key >> 32)); }

// Number of the `count` ascending keys that are below `key`.
DEVICE int keys_below(const uint64_t* keys, int count, uint64_t key) {
  int first = 0;
  while (count > 0) {
    const int half_count = count / 2;
    if (keys[first + half_count] < key) {
      first += half_count + 1;
      count -= half_count + 1;
    } else {
      count = half_count;
    }
  }
  return first;
}

// Sum of `value` over the threads of the block before this one; `total` is the sum over all. Full
// warps; `scratch` holds 32 values in shared memory and is free again when the function returns.
DEVICE int block_prefix(int value, int* scratch, int& total) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const auto scan = [lane](int sum) {
    for (int offset = 1; offset < 32; offset *= 2) {
      const int below = __shfl_up_sync(ALL_LANES, sum, offset);
      if (lane >= offset) sum += below;
    }
    return sum;
  };
  const int own = scan(value);
  if (lane == 31) scratch[warp] = own;
  __syncthreads();
  const int warp_sums = scan(lane < warps ? scratch[lane] : 0);
  total = __shfl_sync(ALL_LANES, warp_sums, 31);
  const int before = __shfl_sync(ALL_LANES, warp_sums, warp > 0 ? warp - 1 : 0);
  __syncthreads();
  return (warp > 0 ? before : 0) + own - value;
}

// Reserves a list slot for each lane with `wanted`: one atomic per warp. Called by all lanes of the
// warp. Slots are not in thread order: sort the list.
DEVICE int take_place(bool wanted, int* list_len) {
  const unsigned lane = threadIdx.x % 32, lanes = __ballot_sync(ALL_LANES, wanted);
  int first = 0;
  if (lane == 0 && lanes != 0) first = atomicAdd(list_len, __popc(lanes));
  first = __shfl_sync(ALL_LANES, first, 0);
  return first + __popc(lanes & ((1u << lane) - 1u));
}

// ---------------------------------------------------------------- radix selection
constexpr int DIGITS = 2048;         // bins of a histogram: 11 bits of a rank
constexpr int SELECT_THREADS = 256;  // threads of a block that calls radix_pick
constexpr int RADIX_PASSES = 3;      // 11 + 11 + 10 bits
DEVICE int radix_shift(int pass) { return pass == 0 ? 21 : pass == 1 ? 10 : 0; }

// The boundary after some passes: all ranks whose leading bits are below `prefix`, and `need` of
// those whose leading bits equal it, are selected.
struct Boundary {
  unsigned prefix;
  int need;
};

// Refines the boundary by the histogram of the next digit among ranks with this prefix.
// `scratch` holds 32 values in shared memory.
DEVICE Boundary radix_pick(Boundary boundary, const unsigned* histogram, int pass, int* scratch) {
  constexpr int OWN = DIGITS / SELECT_THREADS;
  int bins[OWN], sum = 0, total;
  for (int i = 0; i < OWN; i++) {
    bins[i] = (int)histogram[threadIdx.x * OWN + i];
    sum += bins[i];
  }
  int before = block_prefix(sum, scratch, total);
  for (int i = 0; i < OWN; i++) {
    if (before < boundary.need && boundary.need <= before + bins[i]) {
      scratch[0] = (int)threadIdx.x * OWN + i;
      scratch[1] = boundary.need - before;
    }
    before += bins[i];
  }
  __syncthreads();
  const int bits = pass == RADIX_PASSES - 1 ? 10 : 11;
  const Boundary refined{boundary.prefix << bits | (unsigned)scratch[0], scratch[1]};
  __syncthreads();
  return refined;
}

// ---------------------------------------------------------------- sorting
// Sorts distinct keys in shared or global memory ascending: a bitonic network whose first step of
// each merge pairs elements in reverse order, so that every exchange puts the smaller key first and
// any count works. Called by all threads of the block; the keys may be read right after the call.
DEVICE void block_sort(uint64_t* keys, int count) {
  int whole = 1;
  while (whole < count) whole *= 2;
  __syncthreads();
  int reached = 0;
  for (int size = 2; size <= whole; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      // Ranges of up to 64 keys are handled within one warp.
      const int reach = 2 * stride;
      if (reach > 64 || reached > 64)
        __syncthreads();
      else
        __syncwarp();
      reached = reach;
      for (int pair = threadIdx.x; pair < whole / 2; pair += blockDim.x) {
        const int low = 2 * pair - (pair & (stride - 1));
        const int high = stride == size / 2 ? low ^ (size - 1) : low + stride;
        if (high < count) {
          const uint64_t a = keys[low], b = keys[high];
          if (b < a) {
            keys[low] = b;
            keys[high] = a;
          }
        }
      }
    }
  }
  __syncthreads();
}
