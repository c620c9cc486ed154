// Depthwise 7x7 convolution and its gradients; torch's conv2d with as many groups as channels.
//
//   x         [N, H, W, C]          real   in   input
//   w         [C, 7, 7, 1]          real   in   filters
//   bias      [C]                   float  in   or null
//   y         [N, H, W, C]          real   out  output
//   g         [N, H, W, C]          real   in   gradient of the output
//   partials  [N*H / chunk, C*7*7]  float  out  sums over chunks of rows
//   dw        [C, 7, 7, 1]          float  out  gradient of the filters
//
// Launch: y = tiles of 64 channels, two per lane; x = rows of the maps, for the filter gradient
// chunks of rows.
// Cost: 2 * 49 * N*H*W*C FLOPs without tensor cores; on C2 of 12 images of 800x1344 with 96
// channels 7.6 GFLOP.
// Numerics: fp32, in order of the taps; deterministic.
// Edge cases: C is even; padded by 3, so that the output has the size of the input.
//
// A warp computes strips of 8 columns; for the filter gradient each of 7 warps handles one filter
// row. The gradient of the input is the same convolution of g with the filters rotated by 180
// degrees (`turned`). bias_grad_total sums the partials.
#include "gemm/conv.cuh"
#include "platform.cuh"
#include "real.cuh"

REALS(fp16, fp32)

constexpr int SIDE = 7, PAD = SIDE / 2, TAPS = SIDE * SIDE;
constexpr int CHANNELS = 64;  // per block
constexpr int STRIP = 8;      // columns that a warp computes at once

// Two channels of a pixel.
DEVICE float2 load_pair(const real* from) {
#ifdef REAL_IS_FLOAT
  return *(const float2*)from;
#else
  return __half22float2(*(const half2*)from);
#endif
}
DEVICE void store_pair(real* to, float2 v) {
#ifdef REAL_IS_FLOAT
  *(float2*)to = v;
#else
  *(half2*)to = __floats2half2_rn(v.x, v.y);
#endif
}

KERNEL(256)
conv2d_depthwise_f16(const real* RESTRICT x, const real* RESTRICT w, const float* RESTRICT bias,
                     real* RESTRICT y, Conv conv, int turned) {
  SHARED(float, filters, TAPS* CHANNELS);  // [tap][channel]
  const int first = blockIdx.y * CHANNELS;
  for (int i = threadIdx.x; i < TAPS * CHANNELS; i += blockDim.x) {
    const int c = i % CHANNELS, tap = i / CHANNELS;
    const bool exists = first + c < conv.channels;
    const int at = (first + c) * TAPS + (turned ? TAPS - 1 - tap : tap);
    filters[i] = exists ? to_float(w[at]) : 0.0f;
  }
  __syncthreads();
  const int lane = threadIdx.x % 32, channel = first + 2 * lane;
  if (channel >= conv.channels) return;
  const int image = blockIdx.x / conv.height, p = blockIdx.x % conv.height;
  float2 start = make_float2(0.0f, 0.0f);
  if (bias) start = make_float2(bias[channel], bias[channel + 1]);
  const int step = blockDim.x / 32 * STRIP;
  for (int q = threadIdx.x / 32 * STRIP; q < conv.width; q += step) {
    float2 sums[STRIP];
#pragma unroll
    for (int i = 0; i < STRIP; i++) sums[i] = start;
#pragma unroll 1
    for (int r = 0; r < SIDE; r++) {
      const int h = p + r - PAD;
      if ((unsigned)h >= (unsigned)conv.height) continue;
      const real* line =
          x + ((uint64_t)image * conv.height + h) * conv.width * conv.channels + channel;
      float2 values[STRIP + SIDE - 1];
#pragma unroll
      for (int i = 0; i < STRIP + SIDE - 1; i++) {
        const int column = q + i - PAD;
        const bool inside = (unsigned)column < (unsigned)conv.width;
        values[i] = inside ? load_pair(line + (int64_t)column * conv.channels)
                           : make_float2(0.0f, 0.0f);
      }
#pragma unroll
      for (int s = 0; s < SIDE; s++) {
        const float2 tap = *(const float2*)(filters + (r * SIDE + s) * CHANNELS + 2 * lane);
#pragma unroll
        for (int i = 0; i < STRIP; i++) {
          sums[i].x = __fmaf_rn(values[i + s].x, tap.x, sums[i].x);
          sums[i].y = __fmaf_rn(values[i + s].y, tap.y, sums[i].y);
        }
      }
    }
    real* out = y + ((uint64_t)blockIdx.x * conv.width + q) * conv.channels + channel;
#pragma unroll
    for (int i = 0; i < STRIP; i++)
      if (q + i < conv.width) store_pair(out + (int64_t)i * conv.channels, sums[i]);
  }
}

KERNEL(7 * 32)
conv2d_depthwise_grad_weight_f16(const real* RESTRICT x, const real* RESTRICT g,
                                 float* RESTRICT partials, Conv conv, int chunk) {
  const int channel = blockIdx.y * CHANNELS + threadIdx.x % 32 * 2, r = threadIdx.x / 32;
  if (channel >= conv.channels) return;
  const int rows = conv.images * conv.height, begin = blockIdx.x * chunk;
  float2 sums[SIDE];
#pragma unroll
  for (int s = 0; s < SIDE; s++) sums[s] = make_float2(0.0f, 0.0f);
  for (int row = begin; row < min(begin + chunk, rows); row++) {
    const int h = row % conv.height + r - PAD;
    if ((unsigned)h >= (unsigned)conv.height) continue;
    const real* line = x + (uint64_t)(row + r - PAD) * conv.width * conv.channels + channel;
    const real* slopes = g + (uint64_t)row * conv.width * conv.channels + channel;
    float2 values[SIDE];  // of the window, from its first column
#pragma unroll
    for (int s = 0; s < SIDE - 1; s++) {
      const int column = s - PAD;
      const bool inside = (unsigned)column < (unsigned)conv.width;
      values[s] = inside ? load_pair(line + (int64_t)column * conv.channels)
                         : make_float2(0.0f, 0.0f);
    }
#pragma unroll 1
    for (int q = 0; q < conv.width; q++) {
      const int column = q + SIDE - 1 - PAD;
      values[SIDE - 1] = column < conv.width ? load_pair(line + (int64_t)column * conv.channels)
                                             : make_float2(0.0f, 0.0f);
      const float2 slope = load_pair(slopes + (int64_t)q * conv.channels);
#pragma unroll
      for (int s = 0; s < SIDE; s++) {
        sums[s].x = __fmaf_rn(values[s].x, slope.x, sums[s].x);
        sums[s].y = __fmaf_rn(values[s].y, slope.y, sums[s].y);
      }
#pragma unroll
      for (int s = 0; s < SIDE - 1; s++) values[s] = values[s + 1];
    }
  }
  float* out = partials + ((uint64_t)blockIdx.x * conv.channels + channel) * TAPS + r * SIDE;
#pragma unroll
  for (int s = 0; s < SIDE; s++) out[s] = sums[s].x, out[TAPS + s] = sums[s].y;
}
