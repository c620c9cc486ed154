// Tiles of the matrix product, and how its operands lie in shared memory.
//
// D [rows, columns] = sum over k of A [rows, k] * B [k, columns]. A block of THREADS threads makes
// a tile of D, its warps a part each. An operand comes in one of two layouts, as it lies in global
// memory: as rows of D (RowOperand: DEPTH values of k side by side), or as rows of k
// (ColumnOperand). ldmatrix transposes the second on the way to the registers, so no tensor is ever
// stored transposed.
#pragma once
#include "ptx.cuh"

#ifndef __CUDACC__
// The parentheses keep the preprocessor from taking the function's name for ptx.cuh's macro.
#undef load_matrix_x4_transposed
#define load_matrix_x4_transposed(r, row) \
  (::emulated::load_matrix_x4)(r, row, true, __FILE__, __LINE__)
#endif

constexpr int THREADS = 128;
constexpr int CHUNK = 8;   // halves in 16 bytes, the unit of every copy
constexpr int DEPTH = 32;  // values of k in a k-block: two steps of the tensor core's 16

// ROWS x COLUMNS values of D for a block, WARP_ROWS x WARP_COLUMNS for each of its four warps.
template <int ROWS_, int COLUMNS_, int STAGES_>
struct Tile {
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, STAGES = STAGES_;
  static constexpr int WARP_ROWS = ROWS / 2, WARP_COLUMNS = COLUMNS / 2;
  static constexpr int STAGE = (ROWS + COLUMNS) * DEPTH;  // halves
};
using LargeTile = Tile<128, 128, 4>;
using SmallTile = Tile<64, 64, 4>;

// What all layouts share: an operand's part of a stage is LINES lines of CHUNKS chunks, and a
// thread fills PER_THREAD chunks of it, of one chunk column and STRIDE lines apart.
template <int LINES, int CHUNKS_>
struct Operand {
  static constexpr int CHUNKS = CHUNKS_;
  static constexpr int STRIDE = THREADS / CHUNKS, PER_THREAD = LINES / STRIDE;
  static_assert(THREADS % CHUNKS == 0 && LINES % STRIDE == 0, "threads share a stage evenly");
  static DEVICE int line() { return threadIdx.x / CHUNKS; }
  static DEVICE int chunk() { return threadIdx.x % CHUNKS; }
};

// EXTENT rows (or columns) of D, each with DEPTH values of k.
template <int EXTENT>
struct RowOperand : Operand<EXTENT, DEPTH / CHUNK> {
  // Two lines fill the 128 bytes of all banks: with the chunk crossed by the pair of lines, any
  // eight lines have their chunk in different banks.
  static DEVICE int place(int line, int chunk) {
    return line * DEPTH + ((chunk ^ (line >> 1)) & 3) * CHUNK;
  }
  // Fragments of 16 rows of D from `first`, and of 16 values of k.
  static DEVICE void left(unsigned (&r)[4], const half* stage, int first, int step) {
    const int lane = threadIdx.x % 32;
    load_matrix_x4(r, stage + place(first + lane % 16, step * 2 + lane / 16));
  }
  // The same for 16 columns of D: r[0] and r[1] are those of the first eight.
  static DEVICE void right(unsigned (&r)[4], const half* stage, int first, int step) {
    const int lane = threadIdx.x % 32;
    load_matrix_x4(r, stage + place(first + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2));
  }
};

// DEPTH values of k, each with EXTENT rows (or columns) of D.
template <int EXTENT>
struct ColumnOperand : Operand<DEPTH, EXTENT / CHUNK> {
  static DEVICE int place(int line, int chunk) {
    return line * EXTENT + (chunk ^ (line & 7)) * CHUNK;
  }
  static DEVICE void left(unsigned (&r)[4], const half* stage, int first, int step) {
    const int lane = threadIdx.x % 32, k = step * 16 + lane % 8 + lane / 16 * 8;
    load_matrix_x4_transposed(r, stage + place(k, first / CHUNK + lane / 8 % 2));
  }
  static DEVICE void right(unsigned (&r)[4], const half* stage, int first, int step) {
    const int lane = threadIdx.x % 32, k = step * 16 + lane % 16;
    load_matrix_x4_transposed(r, stage + place(k, first / CHUNK + lane / 16));
  }
};
