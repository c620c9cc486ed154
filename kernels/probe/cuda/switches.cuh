// What the variants of the forward loop differ in. All off is today's loop; a variant's file turns
// on what its question asks about, and nothing else.
#pragma once
#include "copies.cuh"

namespace probe {

struct Today {
  static constexpr int DEPTH = ::DEPTH;  // values of k in a k-block
  static constexpr int STAGES = 4;
  static constexpr bool PREDICATED = false;  // fills always, a part in each step; else a branch
  static constexpr bool POINTERS = false;    // keeps addresses and steps them; else makes them anew
  static constexpr bool TAPS_INNER = false;  // k: channels outside, taps inside; else the reverse
  static constexpr Cache CACHE = Cache::L2;
};

// The tile of 128 x 128 with the variant's stages.
template <class S>
struct TileOf {
  static constexpr int ROWS = LargeTile::ROWS, COLUMNS = LargeTile::COLUMNS, STAGES = S::STAGES;
  static constexpr int WARP_ROWS = ROWS / 2, WARP_COLUMNS = COLUMNS / 2, DEPTH = S::DEPTH;
  static constexpr int STAGE = (ROWS + COLUMNS) * DEPTH;  // halves
};

// EXTENT rows (or columns) of D, each with DEPTH values of k: the layout of RowOperand for two
// depths. A line of 64 fills the 128 bytes of all banks, and its chunk
// is crossed by the line; of lines of 32, pairs do.
template <int EXTENT, int DEPTH>
struct Rows : Operand<EXTENT, DEPTH / CHUNK> {
  static_assert(DEPTH == 32 || DEPTH == 64, "a line is half of the banks, or all");
  static DEVICE int place(int line, int chunk) {
    if constexpr (DEPTH == 32) return line * DEPTH + ((chunk ^ (line >> 1)) & 3) * CHUNK;
    return line * DEPTH + ((chunk ^ line) & 7) * CHUNK;
  }
  static DEVICE int left_place(int first, int step) {
    const int lane = threadIdx.x % 32;
    return place(first + lane % 16, step * 2 + lane / 16);
  }
  static DEVICE int right_place(int first, int step) {
    const int lane = threadIdx.x % 32;
    return place(first + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2);
  }
};

}  // namespace probe
