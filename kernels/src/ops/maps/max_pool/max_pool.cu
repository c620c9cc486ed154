// Maximum over square windows, and its gradient; torch's max_pool2d with indices.
//
// max_pool:
//   x       [N, H, W, C]  real  in   input
//   y       [N, P, Q, C]  real  out  maxima
//   argmax  [N, P, Q, C]  int   out  index of the maximum, h * W + w; or null
//
// max_pool_grad:
//   g       [N, P, Q, C]  real  in   gradient of the maxima
//   argmax  [N, P, Q, C]  int   in   as above
//   dx      [N, H, W, C]  real  out  sum over the windows with their maximum here
//
// Launch: a block row per output row, blocks of 256 along its vectors of 8 channels (x8) or its
// channels.
// Cost: each tensor moved once, overlaps from cache; memory-bound.
// Numerics: the maximum is exact; the gradient sums in fp32 in row-major order, rounded once.
// Edge cases: padding never wins, equal values go to the first in row-major order, a NaN wins over
// numbers.
#include "platform.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

struct Pool {
  int h, w, p, q, channels, kernel, stride, pad;
};
static_assert(sizeof(Pool) == 32, "as the launch lays it out");

template <int W>
DEVICE void largest(const real* x, real* y, int* argmax, const Pool s) {
  const int vectors = s.channels / W, item = blockIdx.y * blockDim.x + threadIdx.x;
  if (item >= s.q * vectors) return;
  const int column = item / vectors, channel = item % vectors * W;
  const int image = blockIdx.x / s.p, row = blockIdx.x % s.p;
  const real* map = x + (uint64_t)image * s.h * s.w * s.channels + channel;
  const int y_begin = max(row * s.stride - s.pad, 0);
  const int y_end = min(row * s.stride - s.pad + s.kernel, s.h);
  const int x_begin = max(column * s.stride - s.pad, 0);
  const int x_end = min(column * s.stride - s.pad + s.kernel, s.w);
  float best[W], v[W];
  int place[W];
  const int first = y_begin * s.w + x_begin;
  load(best, map + (uint64_t)first * s.channels);
  for (int i = 0; i < W; i++) place[i] = first;
  for (int r = y_begin; r < y_end; r++) {
    for (int c = x_begin; c < x_end; c++) {
      const int pixel = r * s.w + c;
      if (pixel == first) continue;
      load(v, map + (uint64_t)pixel * s.channels);
      for (int i = 0; i < W; i++) {
        // Nothing is larger than a NaN, so only a later NaN replaces it.
        const bool wins = v[i] > best[i] || v[i] != v[i];
        best[i] = wins ? v[i] : best[i];
        place[i] = wins ? pixel : place[i];
      }
    }
  }
  const uint64_t at = ((uint64_t)blockIdx.x * s.q + column) * s.channels + channel;
  store(y + at, best);
  if (!argmax) return;
  if constexpr (W == WIDE) {
    ((int4*)(argmax + at))[0] = make_int4(place[0], place[1], place[2], place[3]);
    ((int4*)(argmax + at))[1] = make_int4(place[4], place[5], place[6], place[7]);
  } else {
    argmax[at] = place[0];
  }
}

template <int W>
DEVICE void pass_back(const real* g, const int* argmax, real* dx, const Pool s) {
  const int vectors = s.channels / W, item = blockIdx.y * blockDim.x + threadIdx.x;
  if (item >= s.w * vectors) return;
  const int column = item / vectors, channel = item % vectors * W;
  const int image = blockIdx.x / s.h, row = blockIdx.x % s.h;
  const int pixel = row * s.w + column;
  // Windows o that cover coordinate i: o * stride - pad <= i < o * stride - pad + kernel.
  const int y_begin = ceil_div(max(row + s.pad + 1 - s.kernel, 0), s.stride);
  const int y_end = min((row + s.pad) / s.stride + 1, s.p);
  const int x_begin = ceil_div(max(column + s.pad + 1 - s.kernel, 0), s.stride);
  const int x_end = min((column + s.pad) / s.stride + 1, s.q);
  float sum[W], v[W];
  clear(sum);
  for (int r = y_begin; r < y_end; r++) {
    for (int c = x_begin; c < x_end; c++) {
      const uint64_t at = (((uint64_t)image * s.p + r) * s.q + c) * s.channels + channel;
      load(v, g + at);
      int place[W];
      if constexpr (W == WIDE) {
        ((int4*)place)[0] = ((const int4*)(argmax + at))[0];
        ((int4*)place)[1] = ((const int4*)(argmax + at))[1];
      } else {
        place[0] = argmax[at];
      }
      for (int i = 0; i < W; i++) sum[i] += place[i] == pixel ? v[i] : 0.0f;
    }
  }
  store(dx + ((uint64_t)blockIdx.x * s.w + column) * s.channels + channel, sum);
}

KERNEL(256)
max_pool_f16x8(const real* RESTRICT x, real* RESTRICT y, int* RESTRICT argmax, Pool pool) {
  largest<8>(x, y, argmax, pool);
}

KERNEL(256)
max_pool_f16(const real* RESTRICT x, real* RESTRICT y, int* RESTRICT argmax, Pool pool) {
  largest<1>(x, y, argmax, pool);
}

KERNEL(256)
max_pool_grad_f16x8(const real* RESTRICT g, const int* RESTRICT argmax, real* RESTRICT dx,
                    Pool pool) {
  pass_back<8>(g, argmax, dx, pool);
}

KERNEL(256)
max_pool_grad_f16(const real* RESTRICT g, const int* RESTRICT argmax, real* RESTRICT dx,
                  Pool pool) {
  pass_back<1>(g, argmax, dx, pool);
}
