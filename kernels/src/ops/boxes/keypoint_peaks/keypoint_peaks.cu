// Finds the peak of each keypoint map, upsampled to its box by bicubic interpolation;
// heatmaps_to_keypoints of torchvision and detectron2.
//
//   maps   [M * K, S * S]  real   in   logits
//   boxes  [M, 4]          float  in   boxes in network pixels
//   count  [1]             int    in   rows in use
//   peaks  [M, K, 4]       float  out  x and y relative to the box, logit, its softmax over the map
//
// Launch: a block of 256 threads per map.
// Cost: 8 operations per pixel of the boxes, 0.5 GFLOP for 100 boxes of 200 x 200 and 17 keypoints;
// compute-bound.
// Numerics: fp32, the CPU's operations in its order; expf is the device's.
// Edge cases: boxes past the count are 0; of equal pixels the first is the peak; a NaN is never the
// peak.
//
// Works on one strip of columns at a time: the rows of the map are upsampled into shared memory,
// then each thread walks down a column.
#include "boxes.cuh"
#include "real.cuh"
#include "reduce.cuh"

REALS(fp16, fp32)

constexpr int MAX_SIDE = 64;  // side of a map
constexpr int STRIP = 64;     // columns of an upsampled map processed at a time
constexpr float A = -0.75f;   // bicubic coefficient a

// The positions that a pixel on an upsampled axis reads, and their weights.
struct Taps {
  int at[4];
  float weights[4];
};

DEVICE float near_weight(float x) { return ((A + 2.0f) * x - (A + 3.0f)) * x * x + 1.0f; }
DEVICE float far_weight(float x) { return ((A * x - 5.0f * A) * x + 8.0f * A) * x - 4.0f * A; }

DEVICE Taps taps_of(int at, int side, float scale) {
  const float source = scale * ((float)at + 0.5f) - 0.5f;
  const float first = floorf(source), t = source - first;
  Taps taps;
  for (int i = 0; i < 4; i++) taps.at[i] = min(max((int)first + i - 1, 0), side - 1);
  taps.weights[0] = far_weight(t + 1.0f);
  taps.weights[1] = near_weight(t);
  taps.weights[2] = near_weight(1.0f - t);
  taps.weights[3] = far_weight(2.0f - t);
  return taps;
}

// The maximum so far, and its pixel in the upsampled map; of equal values the earlier pixel is
// kept.
struct Peak {
  float value;
  int at;
  DEVICE void take(float other, int other_at) {
    if (other > value || (other == value && other_at < at)) {
      value = other;
      at = other_at;
    }
  }
};

DEVICE Peak warp_peak(Peak peak) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const float value = __shfl_xor_sync(ALL_LANES, peak.value, offset);
    peak.take(value, __shfl_xor_sync(ALL_LANES, peak.at, offset));
  }
  return peak;
}

// The centre of pixel `at` of `pixels` as a fraction of a box side of length `extent`, which is
// upsampled as if it were at least 1.
DEVICE float share(int at, float extent, int pixels) {
  const float length = fmaxf(extent, 1.0f);
  return extent > 0.0f ? ((float)at + 0.5f) * (length / (float)pixels) / extent : 0.5f;
}

KERNEL(256)
keypoint_peaks_f16(const real* RESTRICT maps, const Box* RESTRICT boxes, const int* RESTRICT count,
                   float4* RESTRICT peaks, int per_box, int side) {
  SHARED(float, map, MAX_SIDE * MAX_SIDE);
  SHARED_2D(float, wide, MAX_SIDE, STRIP);
  SHARED(float, scratch, 32);
  SHARED(Peak, found, 32);
  const int row = blockIdx.x / per_box;
  if (row >= *count) {
    if (threadIdx.x == 0) peaks[blockIdx.x] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return;
  }
  const real* own = maps + (uint64_t)blockIdx.x * side * side;
  for (int i = threadIdx.x; i < side * side; i += blockDim.x) map[i] = to_float(own[i]);
  const Box b = boxes[row];
  const int width = (int)ceilf(fmaxf(b.z - b.x, 1.0f));
  const int height = (int)ceilf(fmaxf(b.w - b.y, 1.0f));
  const float across = (float)side / (float)width, down = (float)side / (float)height;
  const int lane = threadIdx.x % STRIP, part = threadIdx.x / STRIP, parts = blockDim.x / STRIP;
  Peak best = {-INFINITY, 0};
  for (int first = 0; first < width; first += STRIP) {
    const int column = first + lane;
    __syncthreads();  // the map is loaded, and the previous strip has been read
    if (column < width) {
      const Taps taps = taps_of(column, side, across);
      for (int y = part; y < side; y += parts) {
        const float* line = map + y * side;
        wide[y][lane] = line[taps.at[0]] * taps.weights[0] + line[taps.at[1]] * taps.weights[1] +
                        line[taps.at[2]] * taps.weights[2] + line[taps.at[3]] * taps.weights[3];
      }
    }
    __syncthreads();
    for (int y = part; y < height && column < width; y += parts) {
      const Taps taps = taps_of(y, side, down);
      const float value =
          wide[taps.at[0]][lane] * taps.weights[0] + wide[taps.at[1]][lane] * taps.weights[1] +
          wide[taps.at[2]][lane] * taps.weights[2] + wide[taps.at[3]][lane] * taps.weights[3];
      best.take(value, y * width + column);
    }
  }
  best = warp_peak(best);
  if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = best;
  __syncthreads();
  for (int warp = 0; warp < blockDim.x / 32; warp++) best.take(found[warp].value, found[warp].at);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < side * side; i += blockDim.x) sum += expf(map[i] - best.value);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0)
    peaks[blockIdx.x] = make_float4(share(best.at % width, b.z - b.x, width),
                                    share(best.at / width, b.w - b.y, height), best.value,
                                    1.0f / sum);
}
