// Greedy non-maximum suppression, 64 rows in score order at a time.
#pragma once
#include "reduce.cuh"

constexpr int NMS_CHUNK = 64;  // rows per 64-bit mask

DEVICE uint64_t both_ballots(bool low, bool high) {
  return (uint64_t)__ballot_sync(ALL_LANES, high) << 32 | __ballot_sync(ALL_LANES, low);
}

// Mask of the rows in `undecided` that survive. Called by a warp; each lane has, for rows `lane`
// and `lane + 32`, the mask of earlier rows that overlap them. Each round decides all rows whose
// earlier rivals are decided: as many rounds as the longest chain of rivals, usually few.
DEVICE uint64_t nms_resolve(uint64_t undecided, uint64_t low_rivals, uint64_t high_rivals) {
  const int lane = threadIdx.x % 32;
  uint64_t kept = 0;
  while (undecided != 0) {
    const bool low = undecided >> lane & 1, high = undecided >> (lane + 32) & 1;
    const uint64_t alive = undecided | kept;
    const uint64_t stand =
        both_ballots(low && !(low_rivals & alive), high && !(high_rivals & alive));
    const uint64_t fall = both_ballots(low && (low_rivals & kept), high && (high_rivals & kept));
    kept |= stand;
    undecided &= ~(stand | fall);
  }
  return kept;
}

// A mask of the lowest `bits` bits.
DEVICE uint64_t low_bits(int bits) { return bits >= 64 ? ~0ull : (1ull << bits) - 1; }
