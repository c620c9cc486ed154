// Turns source images into the network's input: resize, flip, normalise, pad; torchvision's
// GeneralizedRCNNTransform.
//
//   pixels         [N, capacity]  uint8/float  in   rows of RGB packed at the head of each image
//   source_sizes   [N, 2]         int          in   height and width in the source
//   network_sizes  [N, 2]         int          in   height and width in the network's input
//   flips          [N]            int          in   1 = mirrored
//   num_images     [1]            int          in   images in use
//   x              [N, H, W, C]   half         out  0 past channel 3, in the padding, unused images
//
// Launch: a block of 256 per 256 pixels of an output row.
// Cost: 12 cached source values and 2 * C bytes written per pixel; memory-bound (12 images of
// 800x1344: 77 MB written, 103 with C = 4).
// Numerics: fp32, rounded once; normalises after the blend, whose weights add up to 1: one division
// per channel in place of four.
// Edges: sizes that do not fit the buffers give 0, never a fault.
#include "platform.cuh"
#include "vector.cuh"

struct Transform {
  float mean[3], std[3], scale;
  int height, width, channels, capacity, images, bgr;
};
static_assert(sizeof(Transform) == 52, "as cuda.rs lays it out");

struct Tap {
  int low, high;
  float fraction;
};

// As torch's interpolate with align_corners=False.
DEVICE Tap bilinear_tap(int target, int source_size, int target_size) {
  const float scale = (float)source_size / (float)target_size;
  const float at = max(scale * ((float)target + 0.5f) - 0.5f, 0.0f);
  const int low = min((int)at, source_size - 1), high = min(low + 1, source_size - 1);
  return {low, high, min(max(at - (float)low, 0.0f), 1.0f)};
}

constexpr int PIXELS = 256;      // of a row, a block's
constexpr int MAX_CHANNELS = 4;  // of the output

template <typename T>
DEVICE void preprocess(const T* pixels, const int* source_sizes, const int* network_sizes,
                       const int* flips, const int* num_images, half* x, const Transform& t) {
  SHARED(uint4, staged, PIXELS * MAX_CHANNELS * sizeof(half) / sizeof(uint4));
  half* values = (half*)staged;
  const int image = blockIdx.x / t.height, row = blockIdx.x % t.height;
  const int first = blockIdx.y * PIXELS, column = first + threadIdx.x;
  const int source_h = source_sizes[2 * image], source_w = source_sizes[2 * image + 1];
  const int network_h = network_sizes[2 * image], network_w = network_sizes[2 * image + 1];
  const bool fits = source_h > 0 && source_w > 0 &&
                    (uint64_t)source_h * (uint64_t)source_w * 3 <= (uint64_t)t.capacity;
  float out[MAX_CHANNELS] = {};
  if (fits && image < *num_images && row < network_h && column < network_w) {
    const int target = flips[image] != 0 ? network_w - 1 - column : column;
    const Tap y = bilinear_tap(row, source_h, network_h);
    const Tap c = bilinear_tap(target, source_w, network_w);
    const T* base = pixels + (uint64_t)image * t.capacity;
    const T* top = base + (uint64_t)y.low * source_w * 3;
    const T* bottom = base + (uint64_t)y.high * source_w * 3;
    for (int i = 0; i < 3; i++) {
      const int channel = t.bgr ? 2 - i : i;
      const int low = 3 * c.low + channel, high = 3 * c.high + channel;
      const float a = (1.0f - c.fraction) * (float)top[low] + c.fraction * (float)top[high];
      const float b = (1.0f - c.fraction) * (float)bottom[low] + c.fraction * (float)bottom[high];
      const float value = (1.0f - y.fraction) * a + y.fraction * b;
      out[i] = (value * t.scale - t.mean[i]) / t.std[i];
    }
  }
  for (int i = 0; i < MAX_CHANNELS; i++)
    if (i < t.channels) values[t.channels * threadIdx.x + i] = __float2half_rn(out[i]);
  __syncthreads();
  const int count = min(PIXELS, t.width - first) * t.channels;
  half* to = x + ((uint64_t)blockIdx.x * t.width + first) * t.channels;
  // Rows of a multiple of 8 values begin at multiples of 16 bytes.
  if (t.width * t.channels % WIDE == 0) {
    if ((int)threadIdx.x < count / WIDE) ((uint4*)to)[threadIdx.x] = staged[threadIdx.x];
  } else {
    for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = values[i];
  }
}

KERNEL(256)
preprocess_u8(const uint8_t* RESTRICT pixels, const int* RESTRICT source_sizes,
              const int* RESTRICT network_sizes, const int* RESTRICT flips,
              const int* RESTRICT num_images, half* RESTRICT x, Transform transform) {
  preprocess(pixels, source_sizes, network_sizes, flips, num_images, x, transform);
}
EXPORT(preprocess_u8)

KERNEL(256)
preprocess_f32(const float* RESTRICT pixels, const int* RESTRICT source_sizes,
               const int* RESTRICT network_sizes, const int* RESTRICT flips,
               const int* RESTRICT num_images, half* RESTRICT x, Transform transform) {
  preprocess(pixels, source_sizes, network_sizes, flips, num_images, x, transform);
}
EXPORT(preprocess_f32)
