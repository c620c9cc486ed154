// Main loop: a multistage cp.async pipeline over k-blocks, one k-block per stage in shared memory,
// filled ahead of the tensor cores. Independent of the operands' meaning.
#pragma once
#include "tile.cuh"

// The main loop over k. `From` provides the thread's chunks of both operands in the next k-block:
// `left(i)` and `right(i)` return Chunks, which are copied asynchronously and are empty after the
// last k-block; in a GATHERED tile, they return the values. `next()` advances to the next k-block.
template <class T, class Left, class Right, class From>
struct Loop {
  static constexpr int STEPS = T::DEPTH / 16, CHUNKS = Left::PER_THREAD + Right::PER_THREAD;
  static constexpr int STAGE_BYTES = T::STAGE * 2;

  From& from;
  half* stages;
  typename Left::Fill left_fill;
  typename Right::Fill right_fill;
  typename Left::template Fragments<T::WARP_ROWS / 16> left_at;
  typename Right::template Fragments<T::WARP_COLUMNS / 16> right_at;
  unsigned left[2][T::WARP_ROWS / 16][4], right[2][T::WARP_COLUMNS / 16][4];

  DEVICE Loop(From& from, half* stages)
      : from(from),
        stages(stages),
        left_fill(stages),
        right_fill(stages + T::ROWS * T::DEPTH) {
    left_at.place_left(stages, T::warp_row());
    right_at.place_right(stages + T::ROWS * T::DEPTH, T::warp_column());
  }

  // Fills chunks `first..last` of the stage at `to`: the left operand's chunks come first.
  DEVICE void fill(int to, int first, int last) {
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
      if (i < first || i >= last) continue;
      const bool is_left = i < Left::PER_THREAD;
      const int own = is_left ? i : i - Left::PER_THREAD;
      if constexpr (!T::GATHERED) {
        const Chunk chunk = is_left ? from.left(own) : from.right(own);
        const SharedAt at = is_left ? left_fill.at(own) : right_fill.at(own);
        copy_async_16(at + to, chunk.from, chunk.valid);
      } else {
        half* const stage = stages + to / 2;
        if (is_left)
          *(uint4*)(stage + Left::place(Left::line(own), Left::chunk(own))) = from.left(own);
        else
          *(uint4*)(stage + T::ROWS * T::DEPTH +
                    Right::place(Right::line(own), Right::chunk(own))) = from.right(own);
      }
      if (i + 1 == CHUNKS) from.next();
    }
  }
  // Issues the part of the fill of the stage at `to` that belongs to row `row` of the MMAs of
  // `step`: the last step starts the fill, the step before it completes it. Gathered values are all
  // loaded in the last part, if the k-block exists.
  DEVICE void fill_part(int to, int step, int row, bool live) {
    constexpr int PARTS = STEPS * Sums<T>::ROWS;
    const int part = (step + 1) % STEPS * Sums<T>::ROWS + row;
    if constexpr (!T::GATHERED)
      fill(to, part * CHUNKS / PARTS, (part + 1) * CHUNKS / PARTS);
    else if (live && part + 1 == PARTS)
      fill(to, 0, CHUNKS);
  }

  DEVICE void load_fragments(int stage_bytes, int step) {
#pragma unroll
    for (int i = 0; i < T::WARP_ROWS / 16; i++)
      left_at.load(left[step % 2][i], stage_bytes, i, step);
#pragma unroll
    for (int j = 0; j < T::WARP_COLUMNS / 16; j++)
      right_at.load(right[step % 2][j], stage_bytes, j, step);
  }

  // Accumulates the MMAs of a step's fragments. Each row of MMAs issues its part of the fill of
  // stage `to`, so that copies and address computations interleave with the MMAs.
  DEVICE void multiply_step(Sums<T>& sums, int step, int to, bool live) {
#pragma unroll
    for (int i = 0; i < Sums<T>::ROWS; i++) {
#pragma unroll
      for (int j = 0; j < Sums<T>::COLUMNS; j++) {
        const unsigned(&b)[4] = right[step % 2][j / 2];
        multiply_16x8x16(sums.of[i][j], left[step % 2][i], b[j % 2 * 2], b[j % 2 * 2 + 1]);
      }
      fill_part(to, step, i, live);
    }
  }

  // Accumulates `k_blocks` k-blocks. Called by all threads of the block; at the end the stages are
  // free. Terms are added in order of k. Iteration n multiplies k-block n. Before its last step's
  // MMAs, a barrier guarantees that k-block n + 1 has landed, so that its first fragments can be
  // loaded, and that k-block n is no longer read: its stage is refilled from there until the same
  // point in iteration n + 1.
  DEVICE void run(Sums<T>& sums, int k_blocks) {
    constexpr int LAST = (T::STAGES - 1) * STAGE_BYTES;
#pragma unroll 1
    for (int stage = 0; stage < T::STAGES - 1; stage++) {
      if (!T::GATHERED || stage < k_blocks) fill(stage * STAGE_BYTES, 0, CHUNKS);
      copy_async_commit();
    }
#pragma unroll
    for (int row = 0; row < Sums<T>::ROWS; row++) fill_part(LAST, STEPS - 1, row, false);
    copy_async_wait<T::STAGES - 2>();
    __syncthreads();
    if (k_blocks > 0) load_fragments(0, 0);
    int before = LAST, now = 0;
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; k_block++) {
      const int next = now == LAST ? 0 : now + STAGE_BYTES;
      const bool live = k_block + T::STAGES - 1 < k_blocks;
#pragma unroll
      for (int step = 0; step < STEPS; step++) {
        if (step + 1 < STEPS) {
          load_fragments(now, step + 1);
        } else {
          // Commits the group of a k-block, even if empty: all but the newest STAGES - 2 have
          // landed, so that the next one is available.
          copy_async_commit();
          copy_async_wait<T::STAGES - 2>();
          __syncthreads();
          // Past the end, stages hold zeros; gathered stages are not written.
          if (!T::GATHERED || k_block + 1 < k_blocks) load_fragments(next, 0);
        }
        multiply_step(sums, step, step + 1 < STEPS ? before : now, live);
      }
      before = now, now = next;
    }
    copy_async_commit();  // zeros of the last part, which must not land later
    copy_async_wait<0>();
    __syncthreads();
  }
};
