// Upsamples keypoint maps by 2, with a row per RoI and keypoint, and its gradient; torch's bilinear
// interpolate with a factor of 2.
//
//   x      [M, H, W, K]  real  in   forward: a channel per keypoint
//   maps   [M * K, 4HW]  real  out  forward: 0 past the count
//   g      [M * K, 4HW]  real  in   backward: gradient of maps
//   dx     [M, H, W, K]  real  out  backward: 0 past the count
//   count  [1]           int   in   RoIs in use
//
// Launch: a thread per value of the output, blocks of 256.
// Cost: 2.5 bytes per value of the maps, 136 MB at 1,024 RoIs of 17 keypoints; bound by L1, which
// reads each value four times.
// Numerics: fp32, the CPU's operations in its order, rounded once.
// Edge cases: a map of one row or column repeats it.
#include "platform.cuh"
#include "real.cuh"

REALS(fp16, fp32)

// The two positions that a pixel on an upsampled axis reads, and the weight of the second.
struct Taps {
  int first, second;
  float weight;
};

DEVICE Taps doubled(int at, int extent) {
  const float source = fmaxf(0.5f * ((float)at + 0.5f) - 0.5f, 0.0f);
  const int first = (int)source;
  return {first, min(first + 1, extent - 1), source - (float)first};
}

// The weight of input position `position` in the upsampled pixel that reads `taps`.
DEVICE float weight_of(int position, const Taps& taps) {
  return (taps.first == position ? 1.0f - taps.weight : 0.0f) +
         (taps.second == position ? taps.weight : 0.0f);
}

KERNEL(256)
keypoint_maps_f16(const real* RESTRICT x, const int* RESTRICT count, real* RESTRICT maps,
                  uint64_t len, int height, int width, int per_roi) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= len) return;
  const uint64_t row = i / (4 * height * width);
  const int pixel = (int)(i % (4 * height * width));
  const int roi = (int)(row / per_roi), k = (int)(row % per_roi);
  if (roi >= *count) {
    maps[i] = to_real(0.0f);
    return;
  }
  const Taps y = doubled(pixel / (2 * width), height), c = doubled(pixel % (2 * width), width);
  const real* upper = x + ((uint64_t)roi * height + y.first) * width * per_roi + k;
  const real* lower = x + ((uint64_t)roi * height + y.second) * width * per_roi + k;
  const int left = c.first * per_roi, right = c.second * per_roi;
  const float top = (1.0f - c.weight) * to_float(upper[left]) + c.weight * to_float(upper[right]);
  const float low = (1.0f - c.weight) * to_float(lower[left]) + c.weight * to_float(lower[right]);
  maps[i] = to_real((1.0f - y.weight) * top + y.weight * low);
}

KERNEL(256)
keypoint_maps_grad_f16(const real* RESTRICT g, const int* RESTRICT count, real* RESTRICT dx,
                       uint64_t len, int height, int width, int per_roi) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= len) return;
  // Pixels are the fastest index: neighbouring threads read neighbouring values.
  const int pixels = height * width;
  const uint64_t row = i / pixels;
  const int at = (int)(i % pixels), y = at / width, column = at % width;
  const int roi = (int)(row / per_roi), k = (int)(row % per_roi);
  float sum = 0.0f;
  if (roi < *count) {
    const real* map = g + row * 4 * pixels;
    for (int line = max(2 * y - 1, 0); line < min(2 * y + 3, 2 * height); line++) {
      const float down = weight_of(y, doubled(line, height));
      for (int c = max(2 * column - 1, 0); c < min(2 * column + 3, 2 * width); c++) {
        const float across = weight_of(column, doubled(c, width));
        sum += down * across * to_float(map[line * 2 * width + c]);
      }
    }
  }
  dx[((uint64_t)roi * pixels + at) * per_roi + k] = to_real(sum);
}
