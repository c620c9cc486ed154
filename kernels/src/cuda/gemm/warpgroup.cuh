// wgmma main loop: the four warps of a warpgroup multiply together, and the tensor cores read both
// operands from shared memory. Same passes, copies and k-blocks as multiply.cuh. A source that
// includes this file must target compute_90a.
#pragma once
#include "multiply.cuh"
#include "ptx_wgmma.cuh"

// Lines of 64 bytes with chunk indices XORed with the index of the pair of lines: the 64-byte
// swizzle.
template <int EXTENT, int DEPTH, int THREADS>
struct WarpgroupRows : RowOperand<EXTENT, DEPTH, THREADS> {
  static constexpr uint64_t DESCRIPTOR = descriptor(16, 8 * DEPTH * 2, 2);
  static constexpr int STEP_BYTES = 16 * 2;         // 16 values of k
  static constexpr int ROWS_BYTES = 64 * DEPTH * 2;  // 64 rows
};

// Blocks of 64 rows (or columns) of D, each DEPTH lines of 128 bytes in the 128-byte swizzle. A
// thread fills every APART-th chunk of one line.
template <int EXTENT, int DEPTH_, int THREADS>
struct WarpgroupColumns : Operand<DEPTH_, EXTENT / CHUNK, THREADS> {
  static constexpr int DEPTH = DEPTH_, APART = THREADS / DEPTH, PIECE = 64 * DEPTH;
  static constexpr bool K_ALONG = false;
  static constexpr uint64_t DESCRIPTOR = descriptor(PIECE * 2, 1024, 1);
  static constexpr int STEP_BYTES = 16 * 64 * 2, ROWS_BYTES = PIECE * 2;
  static_assert(APART == 4 || APART == 8, "threads that write at once have all banks");
  // With four threads per line, four of eight threads that write at once have a line whose swizzle
  // uses the other half of the banks.
  static DEVICE int line(int) {
    if (APART == 8) return threadIdx.x / 8;
    return threadIdx.x / 32 * 8 + threadIdx.x / 4 % 2 * 4 + threadIdx.x % 32 / 8;
  }
  static DEVICE int chunk(int i) { return threadIdx.x % APART + i * APART; }
  struct Fill {
    SharedAt first[8 / APART];
    DEVICE Fill(half* stage) {
      for (int i = 0; i < 8 / APART; i++)
        first[i] = shared_at(stage + line(i) * 64 + (chunk(i) ^ (line(i) & 7)) * CHUNK);
    }
    DEVICE SharedAt at(int i) const { return first[i % (8 / APART)] + i * APART / 8 * PIECE * 2; }
  };
};

// Like Tile, computed by GROUPS warpgroups along the rows: a warp has 16 of each 64 rows, and all
// columns. The swizzles repeat every 1,024 bytes, which stages must be aligned to.
template <int ROWS_, int COLUMNS_, int STAGES_, int GROUPS_ = 1>
struct WarpgroupTile {
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, STAGES = STAGES_, GROUPS = GROUPS_;
  static constexpr int DEPTH = 32, THREADS = 128 * GROUPS;
  static constexpr bool GATHERED = false, PREFETCHES = true;  // an epilogue's inputs
  static constexpr int SLICES_AHEAD = STAGES > 4;  // registers do not suffice with four stages
  static constexpr int GROUP_ROWS = ROWS / GROUPS;
  static constexpr int WARP_ROWS = GROUP_ROWS / 4, WARP_COLUMNS = COLUMNS, FRAGMENTS_APART = 64;
  static constexpr int STAGE = (ROWS + COLUMNS) * DEPTH;  // halves
  static_assert(STAGE * 2 % 1024 == 0 && ROWS * DEPTH * 2 % 1024 == 0, "operands are aligned");
  static DEVICE int group() { return GROUPS == 1 ? 0 : threadIdx.x / 128; }
  static DEVICE int warp_row() { return group() * GROUP_ROWS + threadIdx.x % 128 / 32 * 16; }
  static DEVICE int warp_column() { return 0; }
  template <int EXTENT>
  using AsRows = WarpgroupRows<EXTENT, DEPTH, THREADS>;
  template <int EXTENT>
  using AsColumns = WarpgroupColumns<EXTENT, DEPTH, THREADS>;
};
using TallTile = WarpgroupTile<256, 128, 6, 2>;
using DeepTile = WarpgroupTile<128, 128, 6>;
using WideTile = WarpgroupTile<128, 128, 4>;
using NarrowTile = WarpgroupTile<128, 64, 4>;
using LowTile = WarpgroupTile<64, 128, 4>;

// The main loop over k, as in multiply.cuh. One wgmma group is in flight while the next k-block's
// copies are issued; a stage is refilled once all warps have waited for its MMAs and passed a
// barrier.
template <int ROWS, int COLUMNS, int STAGES, int GROUPS, class Left, class Right, class From>
struct Loop<WarpgroupTile<ROWS, COLUMNS, STAGES, GROUPS>, Left, Right, From> {
  using T = WarpgroupTile<ROWS, COLUMNS, STAGES, GROUPS>;
  static constexpr int STAGE_BYTES = T::STAGE * 2, AHEAD = STAGES - 2;

  From& from;
  typename Left::Fill left_fill;
  typename Right::Fill right_fill;
  uint64_t left_at, right_at;

  DEVICE Loop(From& from, half* stages)
      : from(from),
        left_fill(stages),
        right_fill(stages + ROWS * T::DEPTH),
        left_at(descriptor_at(Left::DESCRIPTOR, stages) +
                (T::group() * Sums<T>::ROWS * Left::ROWS_BYTES >> 4)),
        right_at(descriptor_at(Right::DESCRIPTOR, stages + ROWS * T::DEPTH)) {}

  // Fills the stage at `to`, and commits its group.
  DEVICE void fill(int to) {
#pragma unroll
    for (int i = 0; i < Left::PER_THREAD; i++) {
      const Chunk chunk = from.left(i);
      copy_async_16(left_fill.at(i) + to, chunk.from, chunk.valid);
    }
#pragma unroll
    for (int i = 0; i < Right::PER_THREAD; i++) {
      const Chunk chunk = from.right(i);
      copy_async_16(right_fill.at(i) + to, chunk.from, chunk.valid);
    }
    from.next();
    copy_async_commit();
  }

  // Accumulates the k-block in the stage at `now`; the MMAs are in flight when this returns.
  DEVICE void multiply(Sums<T>& sums, int now) {
    const uint64_t left = left_at + (now >> 4), right = right_at + (now >> 4);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < T::DEPTH / 16; step++) {
#pragma unroll
      for (int i = 0; i < Sums<T>::ROWS; i++) {
        const uint64_t a = left + ((step * Left::STEP_BYTES + i * Left::ROWS_BYTES) >> 4);
        const uint64_t b = right + (step * Right::STEP_BYTES >> 4);
        multiply_64<!Left::K_ALONG, !Right::K_ALONG>(sums.of[i], a, b);
      }
    }
    wgmma_commit();
  }

  // Accumulates `k_blocks` k-blocks. Called by all threads of the block; at the end the stages are
  // free. Terms are added in order of k.
  DEVICE void run(Sums<T>& sums, int k_blocks) {
#pragma unroll 1
    for (int stage = 0; stage < AHEAD; stage++) fill(stage * STAGE_BYTES);
    int now = 0, ahead = AHEAD * STAGE_BYTES;
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; k_block++) {
      copy_async_wait<AHEAD - 1>();
      fence_proxy_async();
      __syncthreads();
      multiply(sums, now);
      fill(ahead);
      wgmma_wait<1>();
      now = now + STAGE_BYTES == STAGES * STAGE_BYTES ? 0 : now + STAGE_BYTES;
      ahead = ahead + STAGE_BYTES == STAGES * STAGE_BYTES ? 0 : ahead + STAGE_BYTES;
    }
    wgmma_wait<0>();
    copy_async_wait<0>();  // zeros past the end, which must not land later
    __syncthreads();
  }
};
