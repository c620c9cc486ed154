// Vectors of W channels between memory and fp32 registers, and column sums over a block.
//
// Maps are NHWC, so channels are contiguous: W = 8 moves 16 bytes of halves at once and needs a
// multiple of 8 channels; W = 1 handles every other number.
#pragma once
#include "real.cuh"

constexpr int WIDE = 8;  // halves in 16 bytes

template <int W>
DEVICE void load(float (&v)[W], const half* from) {
  static_assert(W == 1 || W == WIDE, "one half, or 16 bytes of them");
  if constexpr (W == WIDE) {
    const uint4 bits = *(const uint4*)from;
    const half2* pairs = (const half2*)&bits;
    for (int i = 0; i < W / 2; i++) {
      const float2 pair = __half22float2(pairs[i]);
      v[2 * i] = pair.x;
      v[2 * i + 1] = pair.y;
    }
  } else {
    v[0] = __half2float(*from);
  }
}

template <int W>
DEVICE void store(half* to, const float (&v)[W]) {
  static_assert(W == 1 || W == WIDE, "one half, or 16 bytes of them");
  if constexpr (W == WIDE) {
    uint4 bits;
    half2* pairs = (half2*)&bits;
    for (int i = 0; i < W / 2; i++) pairs[i] = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
    *(uint4*)to = bits;
  } else {
    *to = __float2half_rn(v[0]);
  }
}

template <int W>
DEVICE void load(float (&v)[W], const float* from) {
  static_assert(W == 1 || W == WIDE, "one float, or 32 bytes of them");
  if constexpr (W == WIDE) {
    const float4 a = ((const float4*)from)[0], b = ((const float4*)from)[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else {
    v[0] = *from;
  }
}

template <int W>
DEVICE void store(float* to, const float (&v)[W]) {
  static_assert(W == 1 || W == WIDE, "one float, or 32 bytes of them");
  if constexpr (W == WIDE) {
    ((float4*)to)[0] = make_float4(v[0], v[1], v[2], v[3]);
    ((float4*)to)[1] = make_float4(v[4], v[5], v[6], v[7]);
  } else {
    *to = v[0];
  }
}

template <int W>
DEVICE void clear(float (&v)[W]) {
  for (int i = 0; i < W; i++) v[i] = 0.0f;
}

constexpr int WALK_BLOCK = 256;   // threads of a block that walks rows
constexpr int WALK_COLUMNS = 32;  // maximum number of vectors side by side

// The walk of a block of WALK_BLOCK threads over the rows of a matrix with `vectors` vectors per
// row: tile `tile` of WALK_COLUMNS vectors, and in it as many rows at a time as there are threads
// for.
struct RowWalk {
  int width;   // vectors side by side
  int column;  // this thread's vector
  int lane;    // this thread's first row
  int lanes;   // rows at a time, and distance to the thread's next row
  bool active;
};

DEVICE RowWalk row_walk(int vectors, int tile) {
  const int width = min(vectors, WALK_COLUMNS), thread = threadIdx.x;
  const int lane = thread / width, lanes = WALK_BLOCK / width;
  const int column = tile * WALK_COLUMNS + thread % width;
  return {width, column, lane, lanes, lane < lanes && column < vectors};
}

// Adds up each column over the walk's `lanes`, in order: thread t gets the sum of the tile's
// element t, threads past the tile's elements get 0. `scratch` holds WALK_BLOCK * W floats and is
// free again when the function returns. Called by all threads of the block.
template <int W>
DEVICE float add_lanes(const RowWalk& walk, const float (&v)[W], float* scratch) {
  const int width = walk.width * W;
  if (walk.lane < walk.lanes) {
    float* own = scratch + threadIdx.x * W;
    for (int i = 0; i < W; i++) own[i] = walk.active ? v[i] : 0.0f;
  }
  __syncthreads();
  float sum = 0.0f;
  if ((int)threadIdx.x < width) {
    for (int lane = 0; lane < walk.lanes; lane++) sum += scratch[lane * width + threadIdx.x];
  }
  __syncthreads();
  return sum;
}

// Writes the sums of add_lanes, of a chunk blockIdx.x of rows, to row blockIdx.x of partial
// [chunks, columns]. Called by all threads of the block.
template <int W>
DEVICE void store_lanes(const RowWalk& walk, const float (&v)[W], float* partial, int columns,
                        float* scratch) {
  const float sum = add_lanes(walk, v, scratch);
  const int column = blockIdx.y * WALK_COLUMNS * W + threadIdx.x;
  if ((int)threadIdx.x < walk.width * W && column < columns)
    partial[(uint64_t)blockIdx.x * columns + column] = sum;
}

// out[column] = sum over `rows` rows of partial [rows, width], in fp64 and a fixed order: a block
// of WALK_BLOCK threads has 32 columns. `scratch` holds WALK_BLOCK doubles.
DEVICE void add_rows(const float* partial, int rows, int width, float* out, double* scratch) {
  const int lane = threadIdx.x / 32, lanes = WALK_BLOCK / 32;
  const int column = blockIdx.x * 32 + threadIdx.x % 32;
  double sum = 0.0;
  if (column < width) {
    for (int row = lane; row < rows; row += lanes) sum += partial[(uint64_t)row * width + column];
  }
  scratch[threadIdx.x] = sum;
  __syncthreads();
  if (lane == 0 && column < width) {
    for (int i = 1; i < lanes; i++) sum += scratch[i * 32 + threadIdx.x];
    out[column] = (float)sum;
  }
}
