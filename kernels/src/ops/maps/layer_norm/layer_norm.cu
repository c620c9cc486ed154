// Layer normalisation over the channels of each position, y = (x - mean) * rstd * gamma + beta, and
// its gradients; torch's layer_norm over the last dimension.
//
//   x        [M, C]          real   in   input
//   gamma    [C]             float  in   scale
//   beta     [C]             float  in   shift
//   y        [M, C]          real   out  output
//   stats    [M, 2]          float  out  mean and rstd per position, for the backward pass
//   g        [M, C]          real   in   gradient of y
//   dx       [M, C]          real   out  gradient of x
//   dgammas  [M / chunk, C]  float  out  sums of g * (x - mean) * rstd over chunks
//   dbetas   [M / chunk, C]  float  out  sums of g over chunks
//
// Launch: a warp per position, blocks of 8; the sums over positions use a block of 256 per chunk
// and
// 32 vectors of channels, like bias_grad.
// Cost: 4 bytes per value forward, 10 backward; memory-bound (C2 of 12 images of 800x1344 with 96
// channels: 155 MB per tensor).
// Numerics: fp32, in a fixed order.
// Edge cases: without positions nothing is written.
#include "platform.cuh"
#include "reduce.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

// The warp's position.
DEVICE int own_row() { return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; }

// The sum of `value(c)` over all channels, on every lane of the warp.
template <class F>
DEVICE float over_channels(int channels, F value) {
  float sum = 0.0f;
  for (int c = threadIdx.x % 32; c < channels; c += 32) sum += value(c);
  return warp_sum(sum);
}

KERNEL(256)
layer_norm_f16(const real* RESTRICT x, const float* RESTRICT gamma, const float* RESTRICT beta,
               real* RESTRICT y, float* RESTRICT stats, int rows, int channels, float eps) {
  const int row = own_row();
  if (row >= rows) return;  // uniform over the warp
  const uint64_t first = (uint64_t)row * channels;
  const float share = 1.0f / (float)channels;
  // Shifted by the first value, so that equal values have zero variance.
  const float start = to_float(x[first]);
  const auto apart = [&](int c) { return to_float(x[first + c]) - start; };
  const float mean = start + over_channels(channels, apart) * share;
  const float variance = share * over_channels(channels, [&](int c) {
    const float deviation = to_float(x[first + c]) - mean;
    return deviation * deviation;
  });
  const float rstd = 1.0f / sqrtf(variance + eps);
  for (int c = threadIdx.x % 32; c < channels; c += 32)
    y[first + c] = to_real((to_float(x[first + c]) - mean) * rstd * gamma[c] + beta[c]);
  if (threadIdx.x % 32 == 0) stats[2 * row] = mean, stats[2 * row + 1] = rstd;
}

KERNEL(256)
layer_norm_grad_input_f16(const real* RESTRICT g, const real* RESTRICT x,
                          const float* RESTRICT gamma, const float* RESTRICT stats,
                          real* RESTRICT dx, int rows, int channels) {
  const int row = own_row();
  if (row >= rows) return;  // uniform over the warp
  const uint64_t first = (uint64_t)row * channels;
  const float mean = stats[2 * row], rstd = stats[2 * row + 1], share = 1.0f / (float)channels;
  const auto scaled = [&](int c) { return to_float(g[first + c]) * gamma[c]; };
  const auto normal = [&](int c) { return (to_float(x[first + c]) - mean) * rstd; };
  const float all = over_channels(channels, scaled) * share;
  const float along =
      over_channels(channels, [&](int c) { return scaled(c) * normal(c); }) * share;
  for (int c = threadIdx.x % 32; c < channels; c += 32)
    dx[first + c] = to_real(rstd * (scaled(c) - all - normal(c) * along));
}

template <int W>
DEVICE void params(const real* g, const real* x, const float* stats, float* dgammas,
                   float* dbetas, int rows, int channels, int chunk) {
  SHARED(float, scratch, WALK_BLOCK* W);
  const int begin = blockIdx.x * chunk, end = min(begin + chunk, rows);
  const RowWalk walk = row_walk(channels / W, blockIdx.y);
  float along[W], all[W];
  clear(along), clear(all);
  if (walk.active) {
    for (int row = begin + walk.lane; row < end; row += walk.lanes) {
      const uint64_t at = (uint64_t)row * channels + walk.column * W;
      const float mean = stats[2 * row], rstd = stats[2 * row + 1];
      float of_y[W], v[W];
      load(of_y, g + at);
      load(v, x + at);
      for (int i = 0; i < W; i++) {
        along[i] += of_y[i] * ((v[i] - mean) * rstd);
        all[i] += of_y[i];
      }
    }
  }
  store_lanes(walk, along, dgammas, channels, scratch);
  store_lanes(walk, all, dbetas, channels, scratch);
}

KERNEL(256)
layer_norm_grad_params_f16x8(const real* RESTRICT g, const real* RESTRICT x,
                             const float* RESTRICT stats, float* RESTRICT dgammas,
                             float* RESTRICT dbetas, int rows, int channels, int chunk) {
  params<WIDE>(g, x, stats, dgammas, dbetas, rows, channels, chunk);
}

KERNEL(256)
layer_norm_grad_params_f16(const real* RESTRICT g, const real* RESTRICT x,
                           const float* RESTRICT stats, float* RESTRICT dgammas,
                           float* RESTRICT dbetas, int rows, int channels, int chunk) {
  params<1>(g, x, stats, dgammas, dbetas, rows, channels, chunk);
}
