// GEMM tiles, and the layouts of their operands in shared memory.
//
// D [rows, columns] = sum over k of A [rows, k] * B [k, columns]. A block computes one tile of D,
// each of its warps a part. An operand has one of two layouts, as in global memory: rows of D
// (RowOperand: DEPTH contiguous values of k), or rows of k (ColumnOperand). ldmatrix transposes the
// second when loading it, so no tensor is ever stored transposed.
#pragma once
#include "ptx.cuh"

constexpr int CHUNK = 8;  // halves in 16 bytes, the unit of every copy

// The source of 16 bytes of a stage, as returned by a loader: `valid` bytes from `from`, then
// zeros. `from` is aligned to 16 and, with valid = 0, never read.
struct Chunk {
  const half* from;
  int valid;
};
DEVICE Chunk chunk_if(bool valid, const half* from) { return {from, valid ? 16 : 0}; }

// An operand's part of a stage, in any layout: LINES lines of CHUNKS chunks; each of THREADS
// threads fills PER_THREAD.
template <int LINES, int CHUNKS_, int THREADS>
struct Operand {
  static constexpr int CHUNKS = CHUNKS_, PER_THREAD = LINES * CHUNKS / THREADS;
  static_assert(LINES * CHUNKS % THREADS == 0, "threads share a stage evenly");
};

// EXTENT rows (or columns) of D, each with DEPTH values of k. A thread fills one chunk column of
// lines STRIDE apart.
template <int EXTENT, int DEPTH_, int THREADS>
struct RowOperand : Operand<EXTENT, DEPTH_ / CHUNK, THREADS> {
  static constexpr int DEPTH = DEPTH_, STRIDE = THREADS / (DEPTH / CHUNK);
  static constexpr bool K_ALONG = true;  // a line
  static_assert(DEPTH == 32, "two lines fill all banks");
  static DEVICE int line(int i) { return threadIdx.x / (DEPTH / CHUNK) + i * STRIDE; }
  static DEVICE int chunk(int) { return threadIdx.x % (DEPTH / CHUNK); }
  // Two lines fill the 128 bytes of all banks: with the chunk index XORed with the index of the
  // pair of lines, the same chunk of any eight lines is in different banks.
  static DEVICE int place(int line, int chunk) {
    return line * DEPTH + ((chunk ^ (line >> 1)) & 3) * CHUNK;
  }
  // Addresses of the thread's chunks in the first stage.
  struct Fill {
    SharedAt first;
    DEVICE Fill(half* stage) : first(shared_at(stage + place(line(0), chunk(0)))) {
      static_assert(STRIDE % 8 == 0, "a period of the swizzle");
    }
    DEVICE SharedAt at(int i) const { return first + i * STRIDE * DEPTH * 2; }
  };
  // Addresses, in the first stage, of the rows that the thread passes to ldmatrix, for COUNT
  // fragments of 16 rows of D from `first` and 16 values of k.
  template <int COUNT>
  struct Fragments {
    SharedAt step_at[DEPTH / 16];
    DEVICE void place_left(const half* stage, int first) {
      const int lane = threadIdx.x % 32;
      for_steps(stage, first + lane % 16, lane / 16);
    }
    // The same for columns of D: r[0] and r[1] belong to the first eight.
    DEVICE void place_right(const half* stage, int first) {
      const int lane = threadIdx.x % 32;
      for_steps(stage, first + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    }
    DEVICE void for_steps(const half* stage, int line, int chunk) {
#pragma unroll
      for (int step = 0; step < DEPTH / 16; step++)
        step_at[step] = shared_at(stage + place(line, step * 2 + chunk));
    }
    DEVICE void load(unsigned (&r)[4], int stage_bytes, int i, int step) const {
      load_matrix_x4(r, step_at[step] + stage_bytes + i * 16 * DEPTH * 2);
    }
  };
};

// DEPTH values of k, each with EXTENT rows (or columns) of D. A thread fills chunks of one line,
// four apart; of eight threads that write at once, four have a line whose swizzle uses the other
// half of the banks.
template <int EXTENT, int DEPTH_, int THREADS>
struct ColumnOperand : Operand<DEPTH_, EXTENT / CHUNK, THREADS> {
  static constexpr int DEPTH = DEPTH_, APART = 4;
  static constexpr bool K_ALONG = false;
  static_assert(THREADS == APART * DEPTH, "a thread has one line");
  static DEVICE int line(int) {
    return threadIdx.x / 32 * 8 + threadIdx.x / 4 % 2 * 4 + threadIdx.x % 32 / 8;
  }
  static DEVICE int chunk(int i) { return threadIdx.x % 4 + i * APART; }
  static DEVICE int place(int line, int chunk) {
    return line * EXTENT + (chunk ^ (line & 7)) * CHUNK;
  }
  struct Fill {
    SharedAt first[2];
    DEVICE Fill(half* stage) {
      for (int i = 0; i < 2; i++) first[i] = shared_at(stage + place(line(i), chunk(i)));
    }
    DEVICE SharedAt at(int i) const { return first[i % 2] + i / 2 * 8 * CHUNK * 2; }
  };
  template <int COUNT>
  struct Fragments {
    SharedAt of[COUNT];
    DEVICE void place_left(const half* stage, int first) {
      const int lane = threadIdx.x % 32;
      for_fragments(stage, lane % 8 + lane / 16 * 8, first / CHUNK + lane / 8 % 2);
    }
    DEVICE void place_right(const half* stage, int first) {
      const int lane = threadIdx.x % 32;
      for_fragments(stage, lane % 16, first / CHUNK + lane / 16);
    }
    DEVICE void for_fragments(const half* stage, int line, int chunk) {
#pragma unroll
      for (int i = 0; i < COUNT; i++) of[i] = shared_at(stage + place(line, chunk + i * 2));
    }
    DEVICE void load(unsigned (&r)[4], int stage_bytes, int i, int step) const {
      load_matrix_x4_transposed(r, of[i] + stage_bytes + step * 16 * EXTENT * 2);
    }
  };
};

// A block's tile: ROWS x COLUMNS values of D, by DOWN x ACROSS warps with WARP_ROWS x WARP_COLUMNS
// each, with STAGES stages of one k-block of DEPTH values of k. GATHERED: its operands are loaded
// element by element, else in chunks.
template <int ROWS_, int COLUMNS_, int STAGES_, bool GATHERED_ = false>
struct Tile {
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, STAGES = STAGES_;
  static constexpr int DEPTH = 32;  // two MMA k-steps of 16
  static constexpr bool GATHERED = GATHERED_, PREFETCHES = false;
  static constexpr int SLICES_AHEAD = 1;  // slices that an epilogue loads ahead
  static constexpr int DOWN = 2, ACROSS = 2, THREADS = DOWN * ACROSS * 32;
  static constexpr int WARP_ROWS = ROWS / DOWN, WARP_COLUMNS = COLUMNS / ACROSS;
  static constexpr int FRAGMENTS_APART = 16;              // rows between fragments
  static constexpr int STAGE = (ROWS + COLUMNS) * DEPTH;  // halves
  // First row and column of D that the thread's warp computes, in the block's tile.
  static DEVICE int warp_row() { return threadIdx.x / 32 % DOWN * WARP_ROWS; }
  static DEVICE int warp_column() { return threadIdx.x / (DOWN * 32) * WARP_COLUMNS; }
  // Layouts of an operand of EXTENT rows or columns of D.
  template <int EXTENT>
  using AsRows = RowOperand<EXTENT, DEPTH, THREADS>;
  template <int EXTENT>
  using AsColumns = ColumnOperand<EXTENT, DEPTH, THREADS>;
};
using LargeTile = Tile<128, 128, 4>;
using SmallTile = Tile<64, 64, 4>;
using UnalignedTile = Tile<64, 64, 4, true>;

// The accumulators of a thread: of each 16 x 8 tile of its warp's part, rows lane / 4 and lane / 4
// + 8, columns lane % 4 * 2 and the next.
template <class T>
struct Sums {
  static constexpr int ROWS = T::WARP_ROWS / 16, COLUMNS = T::WARP_COLUMNS / 8;
  float of[ROWS][COLUMNS][4];
  DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) of[i][j][e] = 0.0f;
  }
  DEVICE void add(const Sums& other) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) of[i][j][e] += other.of[i][j][e];
  }
};
