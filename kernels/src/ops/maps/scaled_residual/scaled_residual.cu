// The end of a residual block, y = x + kept * scale * branch, with a scale per channel and
// stochastic depth, and its gradients.
//
//   x        [N * P, C]          real   in   input; P positions per image
//   branch   [N * P, C]          real   in   residual branch
//   scale    [C]                 float  in   scale per channel
//   keys     [N, 4]              int    in   image id (two words), store, epoch; null: all keep
//   y        [N * P, C]          real   out  output
//   g        [N * P, C]          real   in   gradient of y
//   dbranch  [N * P, C]          real   out  kept * scale * g
//   dscales  [N * P / chunk, C]  float  out  sums of kept * g * branch over chunks
//
// Launch: y = images, x = blocks of 256 threads with 8 values each; the sums use a block of 256 per
// chunk of positions and 32 vectors of channels, like bias_grad.
// Cost: 6 bytes per value forward, 10 backward; memory-bound.
// Numerics: fp32, in a fixed order.
// Edge cases: without images nothing is written.
#include "philox.cuh"
#include "platform.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

// Selects the images that keep a branch, as `Drop` in mod.rs: their random word is at least
// `threshold`.
struct Drop {
  uint64_t seed;
  unsigned threshold, block;
  float kept;
  DEVICE float factor(const int* keys, int image) const {
    if (!keys) return 1.0f;
    return philox_keyed(seed, keys + 4 * image, PURPOSE_DEPTH, block) >= threshold ? kept : 0.0f;
  }
};
static_assert(sizeof(Drop) == 24, "as the launch lays it out");

// Calls f(i, channel) for the thread's values of image blockIdx.y, which has `len` values.
constexpr int VALUES = 8;
template <class F>
DEVICE void over_values(int len, int channels, F f) {
  const int first = blockIdx.x * blockDim.x * VALUES + threadIdx.x;
#pragma unroll
  for (int v = 0; v < VALUES; v++) {
    const int i = first + v * blockDim.x;
    if (i < len) f((uint64_t)blockIdx.y * len + i, i % channels);
  }
}

KERNEL(256)
scaled_residual_f16(const real* RESTRICT x, const real* RESTRICT branch,
                    const float* RESTRICT scale, const int* RESTRICT keys, real* RESTRICT y,
                    int len, int channels, Drop drop) {
  const float factor = drop.factor(keys, blockIdx.y);
  over_values(len, channels, [&](uint64_t i, int channel) {
    y[i] = to_real(to_float(x[i]) + factor * (scale[channel] * to_float(branch[i])));
  });
}

// Has the arguments of scaled_residual_f16, so that both share the launch code; `branch` is not
// read.
KERNEL(256)
scaled_residual_grad_branch_f16(const real* RESTRICT g, const real* RESTRICT branch,
                                const float* RESTRICT scale, const int* RESTRICT keys,
                                real* RESTRICT dbranch, int len, int channels, Drop drop) {
  const float factor = drop.factor(keys, blockIdx.y);
  over_values(len, channels, [&](uint64_t i, int channel) {
    dbranch[i] = to_real(factor * (scale[channel] * to_float(g[i])));
  });
}

template <int W>
DEVICE void grad_scale(const real* g, const real* branch, const int* keys, float* dscales, int rows,
                       int channels, int chunk, int positions, Drop drop) {
  SHARED(float, scratch, WALK_BLOCK* W);
  const int begin = blockIdx.x * chunk, end = min(begin + chunk, rows);
  const RowWalk walk = row_walk(channels / W, blockIdx.y);
  float sums[W];
  clear(sums);
  if (walk.active) {
    int image = -1;
    float factor = 1.0f;
    for (int row = begin + walk.lane; row < end; row += walk.lanes) {
      const uint64_t at = (uint64_t)row * channels + walk.column * W;
      if (row / positions != image) {
        image = row / positions;
        factor = drop.factor(keys, image);
      }
      float of_y[W], v[W];
      load(of_y, g + at);
      load(v, branch + at);
      for (int i = 0; i < W; i++) sums[i] += factor * (of_y[i] * v[i]);
    }
  }
  store_lanes(walk, sums, dscales, channels, scratch);
}

#define GRAD_SCALE(name, W)                                                                     \
  KERNEL(256)                                                                                   \
  name(const real* RESTRICT g, const real* RESTRICT branch, const int* RESTRICT keys,           \
       float* RESTRICT dscales, int rows, int channels, int chunk, int positions, Drop drop) {  \
    grad_scale<W>(g, branch, keys, dscales, rows, channels, chunk, positions, drop);            \
  }
GRAD_SCALE(scaled_residual_grad_scale_f16x8, WIDE)
GRAD_SCALE(scaled_residual_grad_scale_f16, 1)
