// The product of two operands that arrive k-block by k-block: a ring of stages in shared memory,
// each with one k-block, filled by asynchronous copies ahead of the tensor cores. Knows nothing of
// what the operands mean.
#pragma once
#include "tile.cuh"

// What a loader gives for 16 bytes of a stage: `valid` bytes from `from`, then zeros. `from` is
// aligned to 16 and, with valid = 0, never read.
struct Chunk {
  const half* from;
  int valid;
};

// Fills a stage with the loader's next k-block. A loader has, for each of the thread's chunks,
// either `chunk(i)` (ALIGNED: the copy is asynchronous), or `gather(i)`, the values themselves;
// `next()` steps to the next k-block.
template <class Layout, class Loader>
DEVICE void fill(half* stage, Loader& loader) {
#pragma unroll
  for (int i = 0; i < Layout::PER_THREAD; i++) {
    half* to = stage + Layout::place(Layout::line() + i * Layout::STRIDE, Layout::chunk());
    if constexpr (Loader::ALIGNED) {
      const Chunk chunk = loader.chunk(i);
      copy_async_16(to, chunk.from, chunk.valid);
    } else {
      *(uint4*)to = loader.gather(i);
    }
  }
  loader.next();
}

// The values of D that a thread holds: of each 16 x 8 tile of its warp's part, rows lane / 4 and
// lane / 4 + 8, columns lane % 4 * 2 and the next.
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
};

// First row and column of D that the thread's warp makes, in the block's tile.
template <class T>
DEVICE int warp_row() {
  return threadIdx.x / 32 % 2 * T::WARP_ROWS;
}
template <class T>
DEVICE int warp_column() {
  return threadIdx.x / 64 * T::WARP_COLUMNS;
}

template <class T, class Left, class Right>
DEVICE void load_fragments(unsigned (&left)[T::WARP_ROWS / 16][4],
                           unsigned (&right)[T::WARP_COLUMNS / 16][4], const half* stage,
                           int step) {
#pragma unroll
  for (int i = 0; i < T::WARP_ROWS / 16; i++)
    Left::left(left[i], stage, warp_row<T>() + i * 16, step);
#pragma unroll
  for (int j = 0; j < T::WARP_COLUMNS / 16; j++)
    Right::right(right[j], stage + T::ROWS * DEPTH, warp_column<T>() + j * 16, step);
}

// Adds the products of one stage; the fragments of the next step load while this one multiplies.
template <class T, class Left, class Right>
DEVICE void multiply_stage(Sums<T>& sums, const half* stage) {
  constexpr int STEPS = DEPTH / 16;
  unsigned left[2][T::WARP_ROWS / 16][4], right[2][T::WARP_COLUMNS / 16][4];
  load_fragments<T, Left, Right>(left[0], right[0], stage, 0);
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    const int now = step % 2;
    if (step + 1 < STEPS)
      load_fragments<T, Left, Right>(left[1 - now], right[1 - now], stage, step + 1);
#pragma unroll
    for (int i = 0; i < Sums<T>::ROWS; i++)
#pragma unroll
      for (int j = 0; j < Sums<T>::COLUMNS; j++) {
        const unsigned(&b)[4] = right[now][j / 2];
        multiply_16x8x16(sums.of[i][j], left[now][i], b[j % 2 * 2], b[j % 2 * 2 + 1]);
      }
  }
}

// sums = the product over `k_blocks` k-blocks. All threads of the block come; at the end the stages
// are free. Order of summation: k, alone.
template <class T, class Left, class Right, class LoadLeft, class LoadRight>
DEVICE void multiply(Sums<T>& sums, LoadLeft& left, LoadRight& right, int k_blocks, half* stages) {
  auto fill_stage = [&](int stage) {
    fill<Left>(stages + stage * T::STAGE, left);
    fill<Right>(stages + stage * T::STAGE + T::ROWS * DEPTH, right);
  };
  sums.clear();
#pragma unroll 1
  for (int stage = 0; stage < T::STAGES - 1; stage++) {
    if (stage < k_blocks) fill_stage(stage);
    copy_async_commit();
  }
  int from = 0, to = T::STAGES - 1;
#pragma unroll 1
  for (int k_block = 0; k_block < k_blocks; k_block++) {
    // A group is committed for every k-block, empty ones too: all but STAGES - 2 have landed.
    copy_async_wait<T::STAGES - 2>();
    __syncthreads();  // all see the k-block, and all are done with the stage that is filled next
    if (k_block + T::STAGES - 1 < k_blocks) fill_stage(to);
    copy_async_commit();
    multiply_stage<T, Left, Right>(sums, stages + from * T::STAGE);
    from = from + 1 == T::STAGES ? 0 : from + 1;
    to = to + 1 == T::STAGES ? 0 : to + 1;
  }
  copy_async_wait<0>();
  __syncthreads();
}
