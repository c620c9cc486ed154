// Sums and extremes over a warp and a block, in an order that depends only on the block's size:
// bit-identical on every run.
#pragma once
#include "platform.cuh"

constexpr unsigned ALL_LANES = 0xffffffffu;

template <typename T>
DEVICE T warp_sum(T value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(ALL_LANES, value, offset);
  return value;
}

template <typename T>
DEVICE T warp_max(T value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(ALL_LANES, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

// Sum over a one-dimensional block of full warps (32 to 1,024 threads), returned to every thread.
// `scratch` holds 32 values in shared memory; it is free again when the function returns.
template <typename T>
DEVICE T block_sum(T value, T* scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  value = warp_sum(value);
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  value = warp_sum(lane < warps ? scratch[lane] : T(0));
  __syncthreads();
  return value;
}
