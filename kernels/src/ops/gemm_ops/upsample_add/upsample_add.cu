// Top-down step of a feature pyramid, lateral + interpolate(top, "nearest"), and its gradient.
//
// upsample_add:
//   lateral  [N, H, W, C]              real  in   the finer map
//   top      [N, small_h, small_w, C]  real  in   the coarser map
//   y        [N, H, W, C]              real  out  row Y reads row floor(Y * small_h / H) of top
//
// upsample_grad:
//   g      [N, H, W, C]              real  in   gradient of y
//   other  [N, small_h, small_w, C]  real  in   gradient that is added, or null
//   dtop   [N, small_h, small_w, C]  real  out  sum over the outputs that read a position (+ other)
//
// Launch: a row of blocks per output row, blocks of 256 along its vectors of 8 channels (x8) or its
// channels.
// Cost: each tensor moved once; memory-bound (P3 onto P2 of 12 images: 1 GB).
// Numerics: fp32 sums in row-major order, rounded once.
// Edge cases: any ratio of sizes; a position read by no output gets 0.
#include "platform.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

// Extents of the large and the small map, and channels per pixel.
struct Sizes {
  int big_h, big_w, small_h, small_w, channels;
};
static_assert(sizeof(Sizes) == 20, "as the launch lays it out");

template <int W>
DEVICE void add(const real* lateral, const real* top, real* y, const Sizes s) {
  const int vectors = s.channels / W, item = blockIdx.y * blockDim.x + threadIdx.x;
  if (item >= s.big_w * vectors) return;
  const int column = item / vectors, channel = item % vectors * W;
  const int image = blockIdx.x / s.big_h, line = blockIdx.x % s.big_h;
  const int row = (int)((uint64_t)line * s.small_h / s.big_h);
  const int from = (int)((uint64_t)column * s.small_w / s.big_w);
  const uint64_t at = ((uint64_t)blockIdx.x * s.big_w + column) * s.channels + channel;
  const uint64_t above =
      (((uint64_t)image * s.small_h + row) * s.small_w + from) * s.channels + channel;
  float a[W], b[W];
  load(a, lateral + at);
  load(b, top + above);
  for (int i = 0; i < W; i++) a[i] += b[i];
  store(y + at, a);
}

// First output o with floor(o * inputs / outputs) >= i.
DEVICE int first_reader(int i, int inputs, int outputs) {
  return (int)(((uint64_t)i * outputs + inputs - 1) / inputs);
}

template <int W>
DEVICE void gather(const real* g, const real* other, real* dtop, const Sizes s) {
  const int vectors = s.channels / W, item = blockIdx.y * blockDim.x + threadIdx.x;
  if (item >= s.small_w * vectors) return;
  const int column = item / vectors, channel = item % vectors * W;
  const int image = blockIdx.x / s.small_h, row = blockIdx.x % s.small_h;
  const int y_end = first_reader(row + 1, s.small_h, s.big_h);
  const int x_begin = first_reader(column, s.small_w, s.big_w);
  const int x_end = first_reader(column + 1, s.small_w, s.big_w);
  float sum[W], v[W];
  clear(sum);
  for (int y = first_reader(row, s.small_h, s.big_h); y < y_end; y++) {
    const real* line = g + ((uint64_t)image * s.big_h + y) * s.big_w * s.channels + channel;
    for (int x = x_begin; x < x_end; x++) {
      load(v, line + (uint64_t)x * s.channels);
      for (int i = 0; i < W; i++) sum[i] += v[i];
    }
  }
  const uint64_t at = ((uint64_t)blockIdx.x * s.small_w + column) * s.channels + channel;
  if (other != nullptr) {
    load(v, other + at);
    for (int i = 0; i < W; i++) sum[i] += v[i];
  }
  store(dtop + at, sum);
}

KERNEL(256)
upsample_add_f16x8(const real* RESTRICT lateral, const real* RESTRICT top, real* RESTRICT y,
                   Sizes sizes) {
  add<8>(lateral, top, y, sizes);
}

KERNEL(256)
upsample_add_f16(const real* RESTRICT lateral, const real* RESTRICT top, real* RESTRICT y,
                 Sizes sizes) {
  add<1>(lateral, top, y, sizes);
}

KERNEL(256)
upsample_grad_f16x8(const real* RESTRICT g, const real* RESTRICT other, real* RESTRICT dtop,
                    Sizes sizes) {
  gather<8>(g, other, dtop, sizes);
}

KERNEL(256)
upsample_grad_f16(const real* RESTRICT g, const real* RESTRICT other, real* RESTRICT dtop,
                  Sizes sizes) {
  gather<1>(g, other, dtop, sizes);
}
