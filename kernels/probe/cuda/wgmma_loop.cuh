// The forward loop on wgmma, without a warp of its own for the copies: two warpgroups fill stages
// by cp.async in the 128-byte swizzle, and multiply 64 rows each. Threads meet at one barrier a
// k-block, and one group of products stays under way meanwhile.
#pragma once
#include "wgmma.cuh"

namespace probe {

constexpr int GROUP_THREADS = 256;

// EXTENT rows of 64 halves: 128 bytes, their chunks crossed by the line. In memory aligned to 1,024
// bytes that is the swizzle of 128 bytes.
template <int EXTENT>
struct SwizzledRows {
  static constexpr int CHUNKS = 8, STRIDE = GROUP_THREADS / CHUNKS, PER_THREAD = EXTENT / STRIDE;
  static DEVICE int line() { return threadIdx.x / CHUNKS; }
  static DEVICE int chunk() { return threadIdx.x % CHUNKS; }
  static DEVICE int place(int line, int chunk) { return line * 64 + ((chunk ^ line) & 7) * CHUNK; }
};

struct WgmmaSteps {
  static constexpr int DEPTH = 64;
  static constexpr bool TAPS_INNER = false;
};

template <int N>
DEVICE void multiply_step(float (&d)[N / 2], uint64_t a, uint64_t b) {
  if constexpr (N == 128)
    multiply_64x128x16<0, 0>(d, a, b);
  else
    multiply_64x256x16<0, 0>(d, a, b);
}

// A tile of 128 x N; `descriptor` is that of both operands, without the address.
template <int N, int STAGES>
DEVICE void conv_wgmma(const half* x, const half* w, const float* scale, const float* bias,
                       const half* residual, const int* count, half* y, const Conv& conv, int relu,
                       uint64_t descriptor) {
  constexpr int ROWS = 128, STAGE = (ROWS + N) * 64;  // halves
  using Left = SwizzledRows<ROWS>;
  using Right = SwizzledRows<N>;
  DYNAMIC_SHARED(memory);
  // The swizzle counts from multiples of 1,024; the launch asks for as many bytes more.
  half* stages = (half*)(memory + (-shared_address(memory) & 1023));
  const int column_tiles = ceil_div(conv.filters, N);
  const int first_row = blockIdx.x / column_tiles * ROWS;
  const int first_column = blockIdx.x % column_tiles * N;
  const int per_image = conv.out_height * conv.out_width, rows = conv.images * per_image;
  const int filled_rows = filled_images(count, conv.images) * per_image;
  auto window = [&](int row, int& image, int& top, int& left) {
    image = row / per_image;
    const int p = row % per_image / conv.out_width, q = row % per_image % conv.out_width;
    top = p * conv.stride - conv.pad;
    left = q * conv.stride - conv.pad;
    return row < filled_rows;
  };
  Stepped<Left, Right, WgmmaSteps> from(x, w, conv, first_row, first_column, window);
  const int k_blocks =
      first_row < filled_rows ? conv.kernel_h * conv.kernel_w * (conv.channels / 64) : 0;

  const SharedAt left_fill = shared_at(stages + Left::place(Left::line(), Left::chunk()));
  const SharedAt right_fill =
      shared_at(stages + ROWS * 64 + Right::place(Right::line(), Right::chunk()));
  auto fill = [&](int stage, bool live) {
#pragma unroll
    for (int i = 0; i < Left::PER_THREAD; i++) {
      const Chunk chunk = from.window(i);
      copy_async<Cache::L2>(left_fill + stage * STAGE * 2 + i * Left::STRIDE * 128, chunk.from,
                            live ? chunk.valid : 0);
    }
#pragma unroll
    for (int i = 0; i < Right::PER_THREAD; i++) {
      const Chunk chunk = from.filter(i);
      copy_async<Cache::L2>(right_fill + stage * STAGE * 2 + i * Right::STRIDE * 128, chunk.from,
                            live ? chunk.valid : 0);
    }
    from.next_filters();
  };

  float d[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; i++) d[i] = 0.0f;
  const int group = threadIdx.x / 128;
  const uint64_t left = descriptor_at(descriptor, stages + group * 64 * 64);
  const uint64_t right = descriptor_at(descriptor, stages + ROWS * 64);
#pragma unroll 1
  for (int stage = 0; stage < STAGES - 2; stage++) {
    fill(stage, stage < k_blocks);
    copy_async_commit();
  }
  int now = 0, next = STAGES - 2;
#pragma unroll 1
  for (int k_block = 0; k_block < k_blocks; k_block++) {
    copy_async_wait<STAGES - 3>();
    fence_for_products();
    __syncthreads();  // all see the k-block, and all are done with the products of two ago
    products_begin();
    const uint64_t stage = (uint64_t)(now * STAGE * 2 >> 4);
#pragma unroll
    for (int step = 0; step < 4; step++)
      multiply_step<N>(d, left + stage + step * 2, right + stage + step * 2);
    products_commit();
    fill(next, k_block + STAGES - 2 < k_blocks);
    copy_async_commit();
    products_wait<1>();
    now = now + 1 == STAGES ? 0 : now + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
  }
  products_wait<0>();
  copy_async_wait<0>();
  __syncthreads();

  // As store_tile, a warp having 16 rows and all columns.
  constexpr int PITCH = N + 8, LANES = N / CHUNK;
  static_assert(8 * 16 * PITCH * 2 <= STAGES * STAGE, "the warps' slices fit the stages");
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* slice = (float*)stages + warp * (16 * PITCH);
#pragma unroll
  for (int j = 0; j < N / 8; j++) {
    float* to = slice + lane / 4 * PITCH + j * 8 + lane % 4 * 2;
    *(float2*)to = make_float2(d[4 * j], d[4 * j + 1]);
    *(float2*)(to + 8 * PITCH) = make_float2(d[4 * j + 2], d[4 * j + 3]);
  }
  __syncwarp();
  const ActivationRows finish{y, scale, bias, residual, conv.filters, relu};
  const int column = lane % LANES * CHUNK;
  const int d_column = first_column + column;
  if (d_column >= conv.filters) return;
  const ActivationRows::Held held = finish.hold(d_column);
#pragma unroll 1
  for (int line = lane / LANES; line < 16; line += 32 / LANES) {
    const int row = first_row + warp * 16 + line;
    if (row >= rows) break;
    const bool filled = row < filled_rows;
    const Halves other = finish.fetch(row, d_column, filled);
    float v[CHUNK];
    *(float4*)&v[0] = *(const float4*)(slice + line * PITCH + column);
    *(float4*)&v[4] = *(const float4*)(slice + line * PITCH + column + 4);
    finish(v, held, other, row, d_column, filled);
  }
}

}  // namespace probe

#define PROBE_WGMMA(name, columns, stages, blocks)                                           \
  KERNEL_BLOCKS(probe::GROUP_THREADS, blocks)                                                \
  name(const half* RESTRICT x, const half* RESTRICT w, const float* RESTRICT scale,          \
       const float* RESTRICT bias, const half* RESTRICT residual, const int* RESTRICT count, \
       half* RESTRICT y, Conv conv, int relu, uint64_t descriptor) {                         \
    probe::conv_wgmma<columns, stages>(x, w, scale, bias, residual, count, y, conv, relu,    \
                                       descriptor);                                          \
  }                                                                                          \
  EXPORT(name)
