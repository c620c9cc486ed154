// The stem of a ResNet, y = relu(conv(x, w) * scale + bias) with a 7x7 window of stride 2, on
// images of four channels, the last one 0; torch's conv2d of the first three.
//
//   x         [N, H, W, 4]      half   in       images; W is even
//   w         [K, 7, 7, 3]      half   in       filters
//   arranged  [K, 7, 8 * 4]     half   scratch  filters, laid out as x's rows
//   scale     [K]               float  in       scale of each filter
//   bias      [K]               float  in       bias of each filter
//   y         [N, P, Q, K]      half   out      output
//
// Launch: stem_filters_f16 has a thread per value; stem_f16_small like conv2d, without split-k.
// Cost: 2*N*P*Q*K*224 FLOPs, 147 in 224 of them useful (12 images of 800x1344: 92 GFLOP); 52 MB
// read and 413 MB written there.
// Numerics: fp32 accumulation in order of k; deterministic.
// Edge cases: pixels outside the image are zeros that are not read.
//
// GEMM: the rows of D are the N*P*Q positions, its columns the K filters; k runs over the 7 rows of
// the window, a k-block each.
#include "platform.cuh"
#include "gemm/gemm.cuh"
#include "gemm/stem.cuh"

constexpr int KERNEL_SIDE = 7, CHANNELS = 3;

KERNEL(256)
stem_filters_f16(const half* RESTRICT w, half* RESTRICT arranged, int filters) {
  const int item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= filters * KERNEL_SIDE * STEM_ROW) return;
  const int line = item / STEM_ROW, pixel = item % STEM_ROW / STEM_CHANNELS - 1;
  const int channel = item % STEM_CHANNELS;
  const bool exists = pixel >= 0 && channel < CHANNELS;
  arranged[item] = exists ? w[(line * KERNEL_SIDE + pixel) * CHANNELS + channel] : real_of(0.0f, 0);
}
EXPORT(stem_filters_f16)

KERNEL_BLOCKS(SmallTile::THREADS, 4)
stem_f16_small(const half* RESTRICT x, const half* RESTRICT arranged, const float* RESTRICT scale,
               const float* RESTRICT bias, half* RESTRICT y, Conv conv) {
  const ActivationRows epilogue{y, scale, bias, nullptr, conv.filters, 1};
  gemm<SmallTile>(Stem(x, arranged, conv), nullptr, epilogue);
}
EXPORT(stem_f16_small)
