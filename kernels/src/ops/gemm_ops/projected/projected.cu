// Bottleneck output with projection shortcut, y = relu(conv(x, w) * scale + bias + conv(from,
// w_from) * scale_from + bias_from), fused as one GEMM over both inputs.
//
//   x            [N, P, Q, C]  half   in       input of the convolution
//   w            [K, C]        half   in       filters of the convolution, 1x1
//   from         [N, H, W, E]  half   in       input of the projection
//   w_from       [K, E]        half   in       filters of the projection, 1x1
//   scale        [K]           float  in       scale of each filter of w
//   scale_from   [K]           float  in       scale of each filter of w_from
//   bias         [K]           float  in       bias of the convolution
//   bias_from    [K]           float  in       bias of the projection
//   scaled       [K, C]        half   scratch  w times its scales
//   scaled_from  [K, E]        half   scratch  w_from times its scales
//   sum          [K]           float  scratch  bias + bias_from
//   y            [N, P, Q, K]  half   out      output
//   signs        [N*P*Q*K/8]   byte   out      of y, as in src/signs.rs, or null
//
// Launch: projected_filters_f16 uses a thread per 8 values of the scratch filters, and one per
// sum; the GEMM is launched like conv2d's, without split-k. C and E are multiples of 8.
// Cost: 2*N*P*Q*K*(C + E) FLOPs. The projection, 413 MB at res2 of 12 images of
// 800x1344, is neither written nor read.
// Numerics: filters times scales are rounded to half; fp32 accumulation in order of k, the
// projection's first; deterministic.
// Edge cases: none.
#include "platform.cuh"
#include "projected.cuh"

// Scales the chunk `item` of filters of `columns` values.
DEVICE void scale_chunk(const half* w, const float* scale, half* scaled, int item, int columns) {
  const int64_t first = (int64_t)item * CHUNK;
  const Reals own = load_reals(w + first, 0, CHUNK);
  const float factor = scale[first / columns];
  float v[CHUNK];
#pragma unroll
  for (int e = 0; e < CHUNK; e++) v[e] = own.value(e) * factor;
  store_columns(scaled + first, v, 0, CHUNK);
}

KERNEL(256)
projected_filters_f16(const half* RESTRICT w, const half* RESTRICT w_from,
                      const float* RESTRICT scale, const float* RESTRICT scale_from,
                      const float* RESTRICT bias, const float* RESTRICT bias_from,
                      half* RESTRICT scaled, half* RESTRICT scaled_from, float* RESTRICT sum,
                      int filters, int channels, int channels_from) {
  const int own = filters * (channels / CHUNK), others = filters * (channels_from / CHUNK);
  int item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item < own) return scale_chunk(w, scale, scaled, item, channels);
  item -= own;
  if (item < others) return scale_chunk(w_from, scale_from, scaled_from, item, channels_from);
  item -= others;
  if (item < filters) sum[item] = bias[item] + bias_from[item];
}

PROJECTED(projected_f16_large, LargeTile, 2)
PROJECTED(projected_f16_small, SmallTile, 4)
