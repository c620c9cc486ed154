// The mean of each channel over the positions of a map, and its gradient; torch's mean over height
// and width.
//
//   x      [M, P, C]  real  in   forward: P positions of a map
//   y      [M, C]     real  out  forward: 0 past the count
//   g      [M, C]     real  in   backward: gradient of y
//   dx     [M, P, C]  real  out  backward: 0 past the count
//   count  [1]        int   in   rows in use
//
// Launch: a thread per value of the output, blocks of 256.
// Cost: 2 bytes per value of the map, 411 MB at 2,048 RoIs of 7x7 positions and 2,048 channels;
// memory-bound.
// Numerics: fp32, the CPU's operations in its order, rounded once.
// Edge cases: without rows nothing is written.
#include "platform.cuh"
#include "real.cuh"

REALS(fp16, fp32)

KERNEL(256)
mean_positions_f16(const real* RESTRICT x, const int* RESTRICT count, real* RESTRICT y,
                   uint64_t len, int positions, int channels) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= len) return;
  const int row = (int)(i / channels), channel = (int)(i % channels);
  float sum = 0.0f;
  if (row < *count) {
    const real* map = x + (uint64_t)row * positions * channels + channel;
    for (int p = 0; p < positions; p++) sum += to_float(map[(uint64_t)p * channels]);
  }
  y[i] = to_real(sum / (float)positions);
}

KERNEL(256)
mean_positions_grad_f16(const real* RESTRICT g, const int* RESTRICT count, real* RESTRICT dx,
                        uint64_t len, int positions, int channels) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= len) return;
  const uint64_t row = i / ((uint64_t)positions * channels);
  const int channel = (int)(i % channels);
  const bool is_used = (int)row < *count;
  dx[i] = to_real(is_used ? to_float(g[row * channels + channel]) / (float)positions : 0.0f);
}
