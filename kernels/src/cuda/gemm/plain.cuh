// fp32/TF32 reference main loop, not tuned for speed. Replaces multiply.cuh where real is float.
//
// DEPTH values of k at a time are in shared memory, as lines of D; they are summed by FMAs in order
// of k, or with PRODUCTS_IN_TF32 on tensor cores, which round the operands to TF32; the sum is then
// added to the accumulators. So the rounding error grows only with the number of k-blocks.
#pragma once
#include "ptx_tf32.cuh"
#include "tile.cuh"

// Floats per line of T::DEPTH values: the same column of eight lines is in different banks.
template <class T>
constexpr int PITCH = T::DEPTH + 4;

// Accumulates a k-block: rows of D in `a`, columns in `b`.
template <class T>
DEVICE void multiply_k_block(Sums<T>& sums, const float* a, const float* b) {
  const int lane = threadIdx.x % 32;
#ifdef PRODUCTS_IN_TF32
#pragma unroll 1
  for (int k = lane % 4; k < T::DEPTH; k += 8) {
    for (int i = 0; i < Sums<T>::ROWS; i++) {
      const float* line = a + (T::warp_row() + i * 16 + lane / 4) * PITCH<T> + k;
      const float* below = line + 8 * PITCH<T>;
      const unsigned left[4] = {to_tf32(line[0]), to_tf32(below[0]), to_tf32(line[4]),
                                to_tf32(below[4])};
      for (int j = 0; j < Sums<T>::COLUMNS; j++) {
        const float* right = b + (T::warp_column() + j * 8 + lane / 4) * PITCH<T> + k;
        multiply_16x8x8_tf32(sums.of[i][j], left, to_tf32(right[0]), to_tf32(right[4]));
      }
    }
  }
#else
#pragma unroll 1
  for (int k = 0; k < T::DEPTH; k++) {
    for (int i = 0; i < Sums<T>::ROWS; i++) {
      const float* line = a + (T::warp_row() + i * 16 + lane / 4) * PITCH<T> + k;
      for (int j = 0; j < Sums<T>::COLUMNS; j++) {
        const float* right = b + (T::warp_column() + j * 8 + lane % 4 * 2) * PITCH<T> + k;
        for (int e = 0; e < 4; e++)
          sums.of[i][j][e] = __fmaf_rn(line[e / 2 * 8 * PITCH<T>], right[e % 2 * PITCH<T>],
                                       sums.of[i][j][e]);
      }
    }
  }
#endif
}

// The main loop over k: `From` returns values, as in multiply.cuh for a GATHERED tile.
template <class T, class Left, class Right, class From>
struct Loop {
  From& from;
  float *left, *right;  // [T::ROWS, PITCH<T>] and [T::COLUMNS, PITCH<T>]

  DEVICE Loop(From& from, float* memory)
      : from(from), left(memory), right(memory + T::ROWS * PITCH<T>) {
    static_assert((T::ROWS + T::COLUMNS) * PITCH<T> * 2 <= T::STAGES * T::STAGE, "both fit");
  }
  // Writes a chunk to its line of D and its values of k.
  template <class Layout>
  static DEVICE void put(float* to, int i, const Real8& chunk) {
    const int line = Layout::line(i), first = Layout::chunk(i) * CHUNK;
#pragma unroll
    for (int e = 0; e < CHUNK; e++)
      to[Layout::K_ALONG ? line * PITCH<T> + first + e : (first + e) * PITCH<T> + line] =
          chunk.of[e];
  }
  // Accumulates `k_blocks` k-blocks.
  DEVICE void run(Sums<T>& sums, int k_blocks) {
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; k_block++) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < Left::PER_THREAD; i++) put<Left>(left, i, from.left(i));
#pragma unroll
      for (int i = 0; i < Right::PER_THREAD; i++) put<Right>(right, i, from.right(i));
      from.next();
      __syncthreads();
      Sums<T> part;
      part.clear();
      multiply_k_block(part, left, right);
      sums.add(part);
    }
    __syncthreads();
  }
};
