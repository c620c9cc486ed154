// Group normalisation with residual and ReLU, and its gradients; torch's group_norm.
//
// forward:
//   x            [N, H, W, C]        real   in       input
//   gamma, beta  [C]                 float  in       scale and shift per channel
//   residual     [N, H, W, C]        real   in       added before the ReLU, or null
//   partial      [N * chunks, 2, C]  float  scratch  sums of each chunk of positions
//   stats        [N, groups, 2]      float  out      mean and 1 / standard deviation
//   y            [N, H, W, C]        real   out      output
//
// backward:
//   g              [N, H, W, C]        real   in       gradient of the output, masked by the ReLU
//   x              [N, H, W, C]        real   in       input
//   gamma          [C]                 float  in       as above
//   stats          [N, groups, 2]      float  in       as above
//   partial        [N * chunks, 2, C]  float  scratch  sums of each chunk of positions
//   corrections    [N, groups, 2]      float  scratch  slope and offset of dx, see below
//   sums           [N, 2, C]           float  out      of g, and of g * normalised x
//   count          [1]                 int    in       images in use, or null: all
//   dgamma, dbeta  [C]                 float  out      gradients of scale and shift
//   dx             [N, H, W, C]        real   out      gradient of the input
//
// Launch: passes over maps use a block of 256 per chunk of an image's positions and 32 vectors of
// channels; group_norm_stats a block and group_norm_corrections a warp per group of an image.
// Cost: forward reads x twice and writes y, each gradient reads g and x; memory-bound.
// Numerics: chunk sums in fp32, shifted by the channel's first value, so a large mean causes no
// cancellation; the rest in fp64; a fixed order throughout.
// Edge cases: ReLU keeps a NaN; images past the count may hold any values.
#include "platform.cuh"
#include "reduce.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

struct Map {
  int positions, channels, groups, chunk, chunks;
};
static_assert(sizeof(Map) == 20, "as the launch lays it out");

// The part of a map that a block of a pass processes.
struct Part {
  RowWalk walk;
  int image, begin, end, channel;
  uint64_t offset;  // offset of the image's first value of the channel
};

template <int W>
DEVICE Part part_of(const Map m) {
  const RowWalk walk = row_walk(m.channels / W, blockIdx.y);
  const int image = blockIdx.x / m.chunks, begin = blockIdx.x % m.chunks * m.chunk;
  const int channel = walk.column * W;
  const uint64_t offset = (uint64_t)image * m.positions * m.channels + channel;
  return {walk, image, begin, min(begin + m.chunk, m.positions), channel, offset};
}

// Writes two sums for each channel of the tile to partial [blocks, 2, C].
template <int W>
DEVICE void write_sums(const Part& part, const float (&a)[W], const float (&b)[W], float* partial,
                       int channels) {
  SHARED(float, scratch, WALK_BLOCK* W);
  const float first = add_lanes(part.walk, a, scratch), second = add_lanes(part.walk, b, scratch);
  const int column = blockIdx.y * WALK_COLUMNS * W + threadIdx.x;
  if ((int)threadIdx.x < part.walk.width * W && column < channels) {
    float* to = partial + (uint64_t)blockIdx.x * 2 * channels + column;
    to[0] = first;
    to[channels] = second;
  }
}

template <int W>
DEVICE void moments(const real* x, float* partial, const Map m) {
  const Part part = part_of<W>(m);
  float sums[W], squares[W], shift[W], v[W];
  clear(sums);
  clear(squares);
  if (part.walk.active) {
    load(shift, x + part.offset);
#ifdef REAL_IS_FLOAT
#pragma unroll 1  // more floats in flight would spill registers
#endif
    for (int p = part.begin + part.walk.lane; p < part.end; p += part.walk.lanes) {
      load(v, x + part.offset + (uint64_t)p * m.channels);
      for (int i = 0; i < W; i++) {
        const float d = v[i] - shift[i];
        sums[i] += d;
        squares[i] += d * d;
      }
    }
  }
  write_sums(part, sums, squares, partial, m.channels);
}

// Mean and rstd of a vector's channels, with rstd multiplied by gamma (or 1).
template <int W>
DEVICE void factors(const float* stats, const float* gamma, const Map& m, const Part& part,
                    float (&mean)[W], float (&factor)[W]) {
  const int size = m.channels / m.groups;
  for (int i = 0; i < W; i++) {
    const float* of = stats + 2 * ((uint64_t)part.image * m.groups + (part.channel + i) / size);
    mean[i] = of[0];
    factor[i] = gamma == nullptr ? of[1] : of[1] * gamma[part.channel + i];
  }
}

template <int W>
DEVICE void normalise(const real* x, const float* gamma, const float* beta, const real* residual,
                      const float* stats, real* y, const Map m, int relu) {
  const Part part = part_of<W>(m);
  if (!part.walk.active) return;
  float mean[W], factor[W], shift[W], v[W], r[W];
  factors(stats, gamma, m, part, mean, factor);
  load(shift, beta + part.channel);
  for (int p = part.begin + part.walk.lane; p < part.end; p += part.walk.lanes) {
    const uint64_t at = part.offset + (uint64_t)p * m.channels;
    load(v, x + at);
    for (int i = 0; i < W; i++) v[i] = (v[i] - mean[i]) * factor[i] + shift[i];
    if (residual != nullptr) {
      load(r, residual + at);
      for (int i = 0; i < W; i++) v[i] += r[i];
    }
    if (relu) {
      for (int i = 0; i < W; i++) v[i] = v[i] < 0.0f ? 0.0f : v[i];
    }
    store(y + at, v);
  }
}

template <int W>
DEVICE void grad_partial(const real* g, const real* x, const float* stats, float* partial,
                         const Map m) {
  const Part part = part_of<W>(m);
  float sums[W], products[W], mean[W], rstd[W], a[W], b[W];
  clear(sums);
  clear(products);
  if (part.walk.active) {
    factors(stats, nullptr, m, part, mean, rstd);
    for (int p = part.begin + part.walk.lane; p < part.end; p += part.walk.lanes) {
      const uint64_t at = part.offset + (uint64_t)p * m.channels;
      load(a, g + at);
      load(b, x + at);
      for (int i = 0; i < W; i++) {
        sums[i] += a[i];
        products[i] += a[i] * (b[i] - mean[i]);
      }
    }
    for (int i = 0; i < W; i++) products[i] *= rstd[i];
  }
  write_sums(part, sums, products, partial, m.channels);
}

template <int W>
DEVICE void grad_input(const real* g, const real* x, const float* gamma, const float* stats,
                       const float* corrections, real* dx, const Map m) {
  const Part part = part_of<W>(m);
  if (!part.walk.active) return;
  float mean[W], factor[W], slope[W], offset[W], a[W], b[W];
  factors(stats, gamma, m, part, mean, factor);
  for (int i = 0; i < W; i++) {
    const int group = (part.channel + i) / (m.channels / m.groups);
    const float* of = corrections + 2 * ((uint64_t)part.image * m.groups + group);
    slope[i] = of[0];
    offset[i] = of[1];
  }
  for (int p = part.begin + part.walk.lane; p < part.end; p += part.walk.lanes) {
    const uint64_t at = part.offset + (uint64_t)p * m.channels;
    load(a, g + at);
    load(b, x + at);
    for (int i = 0; i < W; i++) a[i] = a[i] * factor[i] - (b[i] - mean[i]) * slope[i] - offset[i];
    store(dx + at, a);
  }
}

#define GROUP_NORM_PASSES(suffix, W)                                                              \
  KERNEL(256)                                                                                     \
  group_norm_moments_##suffix(const real* RESTRICT x, float* RESTRICT partial, Map m) {           \
    moments<W>(x, partial, m);                                                                    \
  }                                                                                               \
  KERNEL(256)                                                                                     \
  group_norm_normalise_##suffix(const real* RESTRICT x, const float* RESTRICT gamma,              \
                                const float* RESTRICT beta, const real* RESTRICT residual,        \
                                const float* RESTRICT stats, real* RESTRICT y, Map m, int relu) { \
    normalise<W>(x, gamma, beta, residual, stats, y, m, relu);                                    \
  }                                                                                               \
  KERNEL(256)                                                                                     \
  group_norm_grad_partial_##suffix(const real* RESTRICT g, const real* RESTRICT x,                \
                                   const float* RESTRICT stats, float* RESTRICT partial, Map m) { \
    grad_partial<W>(g, x, stats, partial, m);                                                     \
  }                                                                                               \
  KERNEL(256)                                                                                     \
  group_norm_grad_input_##suffix(const real* RESTRICT g, const real* RESTRICT x,                  \
                                 const float* RESTRICT gamma, const float* RESTRICT stats,        \
                                 const float* RESTRICT corrections, real* RESTRICT dx, Map m) {   \
    grad_input<W>(g, x, gamma, stats, corrections, dx, m);                                        \
  }
GROUP_NORM_PASSES(f16x8, 8)
GROUP_NORM_PASSES(f16, 1)

// The moments of a group from its channels' chunks, each shifted by its channel's first value.
KERNEL(256)
group_norm_stats(const real* RESTRICT x, const float* RESTRICT partial, float* RESTRICT stats,
                 Map m, float eps) {
  SHARED(double, scratch, 32);
  const int size = m.channels / m.groups;
  const int image = blockIdx.x / m.groups, first = blockIdx.x % m.groups * size;
  const real* shifts = x + (uint64_t)image * m.positions * m.channels + first;
  const float* sums = partial + (uint64_t)image * m.chunks * 2 * m.channels + first;
  const double count = (double)m.positions * size;
  double total = 0.0;
  for (int i = threadIdx.x; i < m.chunks * size; i += blockDim.x) {
    const int chunk = i / size, c = i % size, rows = min(m.chunk, m.positions - chunk * m.chunk);
    total += (double)to_float(shifts[c]) * rows + sums[(uint64_t)chunk * 2 * m.channels + c];
  }
  const double mean = block_sum(total, scratch) / count;
  double around = 0.0;
  for (int i = threadIdx.x; i < m.chunks * size; i += blockDim.x) {
    const int chunk = i / size, c = i % size, rows = min(m.chunk, m.positions - chunk * m.chunk);
    const float* of = sums + (uint64_t)chunk * 2 * m.channels + c;
    const double d = mean - (double)to_float(shifts[c]);
    around += (double)of[m.channels] - 2.0 * d * of[0] + rows * d * d;
  }
  double variance = block_sum(around, scratch) / count;
  variance = variance < 0.0 ? 0.0 : variance;
  if (threadIdx.x == 0) {
    stats[2 * blockIdx.x] = (float)mean;
    stats[2 * blockIdx.x + 1] = (float)(1.0 / sqrt(variance + (double)eps));
  }
}

KERNEL(256)
group_norm_grad_sums(const float* RESTRICT partial, float* RESTRICT sums, Map m) {
  SHARED(double, scratch, WALK_BLOCK);
  const int image = blockIdx.y, width = 2 * m.channels;
  add_rows(partial + (uint64_t)image * m.chunks * width, m.chunks, width,
           sums + (uint64_t)image * width, scratch);
}

// Computes, per group, (slope, offset) of dx = factor * g - (x - mean) * slope - offset.
KERNEL(256)
group_norm_corrections(const float* RESTRICT gamma, const float* RESTRICT stats,
                       const float* RESTRICT sums, float* RESTRICT corrections, Map m, int count) {
  const int lane = threadIdx.x % 32, item = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (item >= count) return;
  const int size = m.channels / m.groups, first = item % m.groups * size;
  const float* of = sums + (uint64_t)(item / m.groups) * 2 * m.channels;
  double plain = 0.0, product = 0.0;
  for (int c = first + lane; c < first + size; c += 32) {
    plain += (double)gamma[c] * of[c];
    product += (double)gamma[c] * of[m.channels + c];
  }
  plain = warp_sum(plain);
  product = warp_sum(product);
  if (lane == 0) {
    const double rstd = stats[2 * item + 1], values = (double)m.positions * size;
    corrections[2 * item] = (float)(rstd * rstd * (product / values));
    corrections[2 * item + 1] = (float)(rstd * (plain / values));
  }
}

KERNEL(256)
group_norm_grad_params(const float* RESTRICT sums, const int* RESTRICT count,
                       float* RESTRICT dgamma, float* RESTRICT dbeta, int images, int channels) {
  const int used = count == nullptr ? images : min(*count, images);
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  double plain = 0.0, product = 0.0;
  for (int n = 0; n < used; n++) {
    plain += sums[(uint64_t)n * 2 * channels + c];
    product += sums[(uint64_t)n * 2 * channels + channels + c];
  }
  dgamma[c] = (float)product;
  dbeta[c] = (float)plain;
}
