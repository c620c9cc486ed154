// Turns source images into the network's input: resize, flip, normalise, pad; torchvision's
// GeneralizedRCNNTransform.
//
//   pixels         [N, capacity]  uint8  in   rows of RGB packed at the head of each image
//   source_sizes   [N, 2]         int    in   height and width in the source
//   network_sizes  [N, 2]         int    in   height and width in the network's input
//   flips          [N]            int    in   1 = mirrored
//   num_images     [1]            int    in   images in use
//   x              [N, H, W, C]   real   out  0 past channel 3, in the padding, unused images
//
// Launch: a block of 256 per 256 pixels of an output row.
// Cost: 12 cached source values and 2 * C bytes written per pixel; memory-bound (12 images of
// 800x1344: 77 MB written, 103 with C = 4).
// Numerics: fp32 (Pillow's filter: bytes, with weights in double), rounded once; normalises after
// the blend, whose weights add up to 1: one division per channel in place of four.
// Edges: sizes that do not fit the buffers give 0, never a fault.
#include "platform.cuh"
#include "vector.cuh"

REALS(fp16, fp32)

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

// Which pixel of an image a thread makes, and from what.
struct Source {
  const uint8_t* base;  // the image's rows of RGB
  int source[2], network[2];
  int row, column;  // of the network's image, before the flip
  bool bgr;
  DEVICE int channel(int i) const { return bgr ? 2 - i : i; }
};

// torchvision's filter: four neighbours.
struct Bilinear {
  DEVICE void operator()(const Source& s, float (&values)[3]) const {
    const Tap y = bilinear_tap(s.row, s.source[0], s.network[0]);
    const Tap c = bilinear_tap(s.column, s.source[1], s.network[1]);
    const uint8_t* top = s.base + (uint64_t)y.low * s.source[1] * 3;
    const uint8_t* bottom = s.base + (uint64_t)y.high * s.source[1] * 3;
    for (int i = 0; i < 3; i++) {
      const int low = 3 * c.low + s.channel(i), high = 3 * c.high + s.channel(i);
      const float a = (1.0f - c.fraction) * (float)top[low] + c.fraction * (float)top[high];
      const float b = (1.0f - c.fraction) * (float)bottom[low] + c.fraction * (float)bottom[high];
      values[i] = (1.0f - y.fraction) * a + y.fraction * b;
    }
  }
};

template <typename Filter>
DEVICE void preprocess(const Filter& filter, const uint8_t* pixels, const int* source_sizes,
                       const int* network_sizes, const int* flips, const int* num_images, real* x,
                       const Transform& t) {
  SHARED(Real8, staged, PIXELS * MAX_CHANNELS / WIDE);
  real* values = (real*)staged;
  const int image = blockIdx.x / t.height, row = blockIdx.x % t.height;
  const int first = blockIdx.y * PIXELS, column = first + threadIdx.x;
  const int source_h = source_sizes[2 * image], source_w = source_sizes[2 * image + 1];
  const int network_h = network_sizes[2 * image], network_w = network_sizes[2 * image + 1];
  const bool fits = source_h > 0 && source_w > 0 &&
                    (uint64_t)source_h * (uint64_t)source_w * 3 <= (uint64_t)t.capacity;
  float out[MAX_CHANNELS] = {};
  if (fits && image < *num_images && row < network_h && column < network_w) {
    const int target = flips[image] != 0 ? network_w - 1 - column : column;
    const uint8_t* base = pixels + (uint64_t)image * t.capacity;
    float value[3];
    filter(Source{base, {source_h, source_w}, {network_h, network_w}, row, target, t.bgr != 0},
           value);
    for (int i = 0; i < 3; i++) out[i] = (value[i] * t.scale - t.mean[i]) / t.std[i];
  }
  for (int i = 0; i < MAX_CHANNELS; i++)
    if (i < t.channels) values[t.channels * threadIdx.x + i] = to_real(out[i]);
  __syncthreads();
  const int count = min(PIXELS, t.width - first) * t.channels;
  real* to = x + ((uint64_t)blockIdx.x * t.width + first) * t.channels;
  // Rows of a multiple of 8 values begin at multiples of 16 bytes.
  if (t.width * t.channels % WIDE == 0) {
    if ((int)threadIdx.x < count / WIDE) ((Real8*)to)[threadIdx.x] = staged[threadIdx.x];
  } else {
    for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = values[i];
  }
}

// The taps of a pixel along one axis in Pillow's bilinear filter: resize/pil.rs.
struct PilTaps {
  static constexpr int PRECISION = 22;  // fraction bits of a weight
  double center, support, total;
  int first, end;

  DEVICE PilTaps(int target, int source_size, int target_size) {
    const double scale = (double)source_size / (double)target_size;
    support = fmax(scale, 1.0);
    center = ((double)target + 0.5) * scale;
    first = max((int)(center - support + 0.5), 0);
    end = min((int)(center + support + 0.5), source_size);
    total = 0.0;
    for (int i = first; i < end; i++) total += share(i);
  }
  DEVICE double share(int i) const {
    return fmax(1.0 - fabs(((double)i - center + 0.5) / support), 0.0);
  }
  DEVICE int weight(int i) const {
    return (int)(0.5 + share(i) / total * (double)(1 << PRECISION));
  }
};

// A weighted sum as a byte.
DEVICE int pil_byte(int sum) { return min(max(sum >> PilTaps::PRECISION, 0), 255); }

constexpr int KEPT_TAPS = 4;  // weights of a column that are kept: enough where it is enlarged

// A pixel by Pillow's filter: each source row blended to a byte, then their blend.
DEVICE void pil_pixel(const uint8_t* base, int row, int column, const int (&source)[2],
                      const int (&network)[2], int (&rgb)[3]) {
  const PilTaps y(row, source[0], network[0]), x(column, source[1], network[1]);
  int kept[KEPT_TAPS];
#pragma unroll
  for (int i = 0; i < KEPT_TAPS; i++) kept[i] = x.first + i < x.end ? x.weight(x.first + i) : 0;
  for (int c = 0; c < 3; c++) rgb[c] = 1 << (PilTaps::PRECISION - 1);
  for (int line = y.first; line < y.end; line++) {
    const uint8_t* from = base + (uint64_t)line * (uint64_t)source[1] * 3;
    int sums[3];
    for (int c = 0; c < 3; c++) sums[c] = 1 << (PilTaps::PRECISION - 1);
    const auto add = [&](int i, int weight) {
      for (int c = 0; c < 3; c++) sums[c] += weight * (int)from[3 * i + c];
    };
#pragma unroll
    for (int i = 0; i < KEPT_TAPS; i++)
      if (x.first + i < x.end) add(x.first + i, kept[i]);
    for (int i = x.first + KEPT_TAPS; i < x.end; i++) add(i, x.weight(i));
    const int weight = y.weight(line);
    for (int c = 0; c < 3; c++) rgb[c] += weight * pil_byte(sums[c]);
  }
  for (int c = 0; c < 3; c++) rgb[c] = pil_byte(rgb[c]);
}

KERNEL(256)
preprocess_u8(const uint8_t* RESTRICT pixels, const int* RESTRICT source_sizes,
              const int* RESTRICT network_sizes, const int* RESTRICT flips,
              const int* RESTRICT num_images, real* RESTRICT x, Transform transform) {
  preprocess(Bilinear{}, pixels, source_sizes, network_sizes, flips, num_images, x, transform);
}
EXPORT(preprocess_u8)

struct Pil {
  DEVICE void operator()(const Source& s, float (&values)[3]) const {
    int rgb[3];
    pil_pixel(s.base, s.row, s.column, s.source, s.network, rgb);
    values[0] = (float)(s.bgr ? rgb[2] : rgb[0]);
    values[1] = (float)rgb[1];
    values[2] = (float)(s.bgr ? rgb[0] : rgb[2]);
  }
};

KERNEL(256)
preprocess_pil_u8(const uint8_t* RESTRICT pixels, const int* RESTRICT source_sizes,
                  const int* RESTRICT network_sizes, const int* RESTRICT flips,
                  const int* RESTRICT num_images, real* RESTRICT x, Transform transform) {
  preprocess(Pil{}, pixels, source_sizes, network_sizes, flips, num_images, x, transform);
}
EXPORT(preprocess_pil_u8)
