// The forward loop of a variant: today's of multiply.cuh and conv2d.cu, with the switches.
#pragma once
#include "operands.cuh"

namespace probe {

template <class S>
struct Loop {
  using T = TileOf<S>;
  using Left = Rows<T::ROWS, S::DEPTH>;
  using Right = Rows<T::COLUMNS, S::DEPTH>;
  using From = Operands<Left, Right, S>;
  static constexpr int STEPS = S::DEPTH / 16;
  static constexpr int CHUNKS = Left::PER_THREAD + Right::PER_THREAD;
  static constexpr int LINE_BYTES = S::DEPTH * 2, STAGE_BYTES = T::STAGE * 2;

  From& from;
  half* stages;
  // With POINTERS, places in the first stage: of the thread's first chunks, and of its rows of each
  // step's fragments. All others are a whole number of lines and stages further.
  SharedAt left_fill, right_fill, left_row[STEPS], right_row[STEPS];

  DEVICE Loop(From& from, half* stages) : from(from), stages(stages) {
    if constexpr (S::POINTERS) {
      half* const right = stages + T::ROWS * S::DEPTH;
      left_fill = shared_at(stages + Left::place(Left::line(), Left::chunk()));
      right_fill = shared_at(right + Right::place(Right::line(), Right::chunk()));
#pragma unroll
      for (int step = 0; step < STEPS; step++) {
        left_row[step] = shared_at(stages + Left::left_place(warp_row<T>(), step));
        right_row[step] = shared_at(right + Right::right_place(warp_column<T>(), step));
      }
    }
  }

  // Fills chunks `first` to `last` of stage `stage`, those of both operands counted through; with
  // zeros, and no reads, if not `live`.
  DEVICE void fill(int stage, int first, int last, bool live) {
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
      if (i < first || i >= last) continue;
      const bool left = i < Left::PER_THREAD;
      const int own = left ? i : i - Left::PER_THREAD;
      const Chunk chunk = left ? from.window(own) : from.filter(own);
      const int valid = live ? chunk.valid : 0;
      if constexpr (S::POINTERS) {
        // Lines STRIDE apart have the same swizzle.
        static_assert(Left::STRIDE % 8 == 0 && Right::STRIDE % 8 == 0, "a period of the swizzle");
        const SharedAt to = (left ? left_fill : right_fill) + stage * STAGE_BYTES;
        const int line = own * (left ? Left::STRIDE : Right::STRIDE);
        copy_async<S::CACHE>(to + line * LINE_BYTES, chunk.from, valid);
      } else {
        half* to = stages + stage * T::STAGE;
        if (left)
          to += Left::place(Left::line() + own * Left::STRIDE, Left::chunk());
        else
          to += T::ROWS * S::DEPTH +
                Right::place(Right::line() + own * Right::STRIDE, Right::chunk());
        copy_async<S::CACHE>(to, chunk.from, valid);
      }
      if (i + 1 == Left::PER_THREAD) from.next_windows();
      if (i + 1 == CHUNKS) from.next_filters();
    }
  }

  DEVICE void load_fragments(unsigned (&left)[T::WARP_ROWS / 16][4],
                             unsigned (&right)[T::WARP_COLUMNS / 16][4], int stage, int step) {
#pragma unroll
    for (int i = 0; i < T::WARP_ROWS / 16; i++) {
      if constexpr (S::POINTERS) {
        load_matrix(left[i], left_row[step] + stage * STAGE_BYTES + i * 16 * LINE_BYTES);
      } else {
        const int at = Left::left_place(warp_row<T>() + i * 16, step);
        load_matrix_x4(left[i], stages + stage * T::STAGE + at);
      }
    }
#pragma unroll
    for (int j = 0; j < T::WARP_COLUMNS / 16; j++) {
      if constexpr (S::POINTERS) {
        load_matrix(right[j], right_row[step] + stage * STAGE_BYTES + j * 16 * LINE_BYTES);
      } else {
        const int at = Right::right_place(warp_column<T>() + j * 16, step);
        load_matrix_x4(right[j], stages + stage * T::STAGE + T::ROWS * S::DEPTH + at);
      }
    }
  }

  // Adds the products of one stage. With PREDICATED each row of a step's products also fills its
  // part of stage `next`, so that the copies and their addresses stand among the products.
  DEVICE void multiply_stage(Sums<T>& sums, int stage, int next, bool live) {
    unsigned left[2][T::WARP_ROWS / 16][4], right[2][T::WARP_COLUMNS / 16][4];
    load_fragments(left[0], right[0], stage, 0);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      const int now = step % 2;
      if (!S::PREDICATED && step + 1 < STEPS)
        load_fragments(left[1 - now], right[1 - now], stage, step + 1);
#pragma unroll
      for (int i = 0; i < Sums<T>::ROWS; i++) {
#pragma unroll
        for (int j = 0; j < Sums<T>::COLUMNS; j++) {
          const unsigned(&b)[4] = right[now][j / 2];
          multiply_16x8x16(sums.of[i][j], left[now][i], b[j % 2 * 2], b[j % 2 * 2 + 1]);
        }
        constexpr int PARTS = STEPS * Sums<T>::ROWS;
        static_assert(CHUNKS % PARTS == 0, "a row of products has its part of the copies");
        const int part = step * Sums<T>::ROWS + i;
        if constexpr (S::PREDICATED)
          fill(next, part * CHUNKS / PARTS, (part + 1) * CHUNKS / PARTS, live);
        if (S::PREDICATED && i == 1 && step + 1 < STEPS)
          load_fragments(left[1 - now], right[1 - now], stage, step + 1);
      }
    }
  }

  // sums = the product over `k_blocks` k-blocks. All threads of the block come; at the end the
  // stages are free. Order of summation: k, alone.
  DEVICE void multiply(Sums<T>& sums, int k_blocks) {
    sums.clear();
#pragma unroll 1
    for (int stage = 0; stage < T::STAGES - 1; stage++) {
      if (S::PREDICATED || stage < k_blocks) fill(stage, 0, CHUNKS, stage < k_blocks);
      copy_async_commit();
    }
    int now = 0, next = T::STAGES - 1;
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; k_block++) {
      // A group is committed for every k-block, empty ones too: all but STAGES - 2 have landed.
      copy_async_wait<T::STAGES - 2>();
      __syncthreads();  // all see the k-block, and all are done with the stage that is filled next
      const bool live = k_block + T::STAGES - 1 < k_blocks;
      if constexpr (!S::PREDICATED) {
        if (live) fill(next, 0, CHUNKS, true);
        copy_async_commit();
      }
      multiply_stage(sums, now, next, live);
      if constexpr (S::PREDICATED) copy_async_commit();
      now = now + 1 == T::STAGES ? 0 : now + 1;
      next = next + 1 == T::STAGES ? 0 : next + 1;
    }
    copy_async_wait<0>();
    __syncthreads();
  }
};

// As conv2d of conv2d.cu, unsplit.
template <class S>
DEVICE void conv(const half* x, const half* w, const float* scale, const float* bias,
                 const half* residual, const int* count, half* y, const Conv& conv, int relu) {
  using T = TileOf<S>;
  using Steps = Loop<S>;
  DYNAMIC_SHARED(memory);
  half* stages = (half*)memory;
  const int column_tiles = ceil_div(conv.filters, T::COLUMNS);
  const int first_row = blockIdx.x / column_tiles * T::ROWS;
  const int first_column = blockIdx.x % column_tiles * T::COLUMNS;
  const int per_image = conv.out_height * conv.out_width, rows = conv.images * per_image;
  const int filled_rows = filled_images(count, conv.images) * per_image;

  auto window = [&](int row, int& image, int& top, int& left) {
    image = row / per_image;
    const int p = row % per_image / conv.out_width, q = row % per_image % conv.out_width;
    top = p * conv.stride - conv.pad;
    left = q * conv.stride - conv.pad;
    return row < filled_rows;
  };
  typename Steps::From from(x, w, conv, first_row, first_column, window);
  const int depths = ceil_div(conv.channels, S::DEPTH);
  const int k_blocks = first_row < filled_rows ? conv.kernel_h * conv.kernel_w * depths : 0;
  Sums<T> sums;
  Steps(from, stages).multiply(sums, k_blocks);

  const Corner corner{first_row, first_column, rows, filled_rows, conv.filters};
  const ActivationRows finish{y, scale, bias, residual, conv.filters, relu};
  store_tile(sums, stages, corner, nullptr, [](int row) { return row; }, finish);
}

}  // namespace probe

#define PROBE_CONV(name, switches)                                                           \
  KERNEL_BLOCKS(THREADS, 2)                                                                  \
  name(const half* RESTRICT x, const half* RESTRICT w, const float* RESTRICT scale,          \
       const float* RESTRICT bias, const half* RESTRICT residual, const int* RESTRICT count, \
       half* RESTRICT y, Conv conv, int relu) {                                              \
    probe::conv<switches>(x, w, scale, bias, residual, count, y, conv, relu);                \
  }                                                                                          \
  EXPORT(name)
