// Transforms source images to the network's input: crop, resize, flip, transpose, adjust colours,
// normalise, pad; torchvision's GeneralizedRCNNTransform.
//
//   pixels         [N, capacity]  uint8  in   rows of RGB packed at the start of each image
//   views          [N]            View   in   the transform of each image
//   num_images     [1]            int    in   images in use
//   colours        [N, 3, 4]      float  in   affine RGB maps (only the .._colours kernels)
//   x              [N, H, W, C]   real   out  0 past channel 3, in the padding, unused images
//
// Launch: a block of 256 per 256 pixels of an output row.
// Cost: 12 cached source values and 2 * C bytes written per pixel; memory-bound (12 images of
// 800x1344: 77 MB written, 103 with C = 4).
// Numerics: fp32 (Pillow's filter: bytes, with weights in double), rounded once; normalises after
// the blend, whose weights sum to 1: one division per channel instead of four.
// Edge cases: views that do not fit the buffers give 0, never an invalid access.
#include "platform.cuh"
#include "vector.cuh"
#include "view.cuh"

REALS(fp16, fp32)

struct Transform {
  float mean[3], std[3], scale;
  int height, width, channels, capacity, images, bgr;
};
static_assert(sizeof(Transform) == 52, "as the launch lays it out");

struct Tap {
  int low, high;
  float fraction;
};

// The tap of a pixel of the resized window, as in torch's interpolate with align_corners=False.
DEVICE Tap bilinear_tap(const Axis& axis, int target) {
  const float scale = (float)axis.window / (float)axis.resized;
  const float at = max(scale * ((float)target + 0.5f) - 0.5f, 0.0f);
  const int low = min((int)at, axis.window - 1), high = min(low + 1, axis.window - 1);
  return {axis.start + low, axis.start + high, min(max(at - (float)low, 0.0f), 1.0f)};
}

constexpr int PIXELS = 256;      // pixels of a row per block
constexpr int MAX_CHANNELS = 4;  // maximum channels of the output

// The source pixel positions that a thread resamples for one output pixel.
struct Source {
  const uint8_t* base;  // the image's rows of RGB
  Axis y, x;
  int row, column;  // in the resized window
  bool bgr;
  DEVICE int channel(int i) const { return bgr ? 2 - i : i; }
};

// torchvision's bilinear filter: four neighbours.
struct Bilinear {
  DEVICE void operator()(const Source& s, float (&values)[3]) const {
    const Tap y = bilinear_tap(s.y, s.row), c = bilinear_tap(s.x, s.column);
    const uint8_t* top = s.base + (uint64_t)y.low * s.x.source * 3;
    const uint8_t* bottom = s.base + (uint64_t)y.high * s.x.source * 3;
    for (int i = 0; i < 3; i++) {
      const int low = 3 * c.low + s.channel(i), high = 3 * c.high + s.channel(i);
      const float a = (1.0f - c.fraction) * (float)top[low] + c.fraction * (float)top[high];
      const float b = (1.0f - c.fraction) * (float)bottom[low] + c.fraction * (float)bottom[high];
      values[i] = (1.0f - y.fraction) * a + y.fraction * b;
    }
  }
};

// Leaves colours unchanged.
struct Plain {
  DEVICE void operator()(int, bool, float (&)[3]) const {}
};

// An affine map of red, green and blue for each image, clipped to 0..255.
struct Colours {
  const float4* rows;  // [N, 3]
  DEVICE void operator()(int image, bool bgr, float (&values)[3]) const {
    const float red = bgr ? values[2] : values[0], green = values[1];
    const float blue = bgr ? values[0] : values[2];
    for (int i = 0; i < 3; i++) {
      const float4 row = rows[3 * image + (bgr ? 2 - i : i)];
      const float value = row.x * red + row.y * green + row.z * blue + row.w;
      values[i] = fminf(fmaxf(value, 0.0f), 255.0f);
    }
  }
};

template <typename Filter, typename Change>
DEVICE void preprocess(const Filter& filter, const Change& change, const uint8_t* pixels,
                       const View* views, const int* num_images, real* x, const Transform& t) {
  SHARED(Real8, staged, PIXELS * MAX_CHANNELS / WIDE);
  real* values = (real*)staged;
  const int image = blockIdx.x / t.height, row = blockIdx.x % t.height;
  const int first = blockIdx.y * PIXELS, column = first + threadIdx.x;
  const View view = views[image];
  const bool fits = view.y.is_sound() && view.x.is_sound() &&
                    (uint64_t)view.y.source * (uint64_t)view.x.source * 3 <= (uint64_t)t.capacity;
  float out[MAX_CHANNELS] = {};
  // Position in the source's orientation; recomputed, so that it occupies no registers in between.
  const auto down = [&] { return view.transposed ? column : row; };
  const auto across = [&] { return view.transposed ? row : column; };
  if (fits && image < *num_images && down() < view.y.network && across() < view.x.network) {
    const uint8_t* base = pixels + (uint64_t)image * t.capacity;
    float value[3];
    filter(Source{base, view.y, view.x, view.y.resized_at(down()), view.x.resized_at(across()),
                  t.bgr != 0},
           value);
    change(image, t.bgr != 0, value);
    for (int i = 0; i < 3; i++) out[i] = (value[i] * t.scale - t.mean[i]) / t.std[i];
  }
  for (int i = 0; i < MAX_CHANNELS; i++)
    if (i < t.channels) values[t.channels * threadIdx.x + i] = to_real(out[i]);
  __syncthreads();
  const int count = min(PIXELS, t.width - first) * t.channels;
  real* to = x + ((uint64_t)blockIdx.x * t.width + first) * t.channels;
  // If a row has a multiple of 8 values, rows begin at multiples of 16 bytes.
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
    const double distance = fabs((double)i - center + 0.5);
    return fmax(1.0 - over(distance, support), 0.0);
  }
  DEVICE int weight(int i) const {
    return (int)(0.5 + over(share(i), total) * (double)(1 << PRECISION));
  }
  // A division, except by 1: when enlarging, the support and the sum of the weights are 1.
  DEVICE static double over(double value, double by) { return by == 1.0 ? value : value / by; }
};

// A weighted sum as a byte.
DEVICE int pil_byte(int sum) { return min(max(sum >> PilTaps::PRECISION, 0), 255); }

constexpr int KEPT_TAPS = 4;  // weights kept per column: enough when enlarging

// A pixel with Pillow's filter: each source row is blended to a byte, then the rows are blended.
DEVICE void pil_pixel(const Source& s, int (&rgb)[3]) {
  const PilTaps y(s.row, s.y.window, s.y.resized), x(s.column, s.x.window, s.x.resized);
  const uint8_t* base = s.base + ((uint64_t)s.y.start * (uint64_t)s.x.source + s.x.start) * 3;
  int kept[KEPT_TAPS];
#pragma unroll
  for (int i = 0; i < KEPT_TAPS; i++) kept[i] = x.first + i < x.end ? x.weight(x.first + i) : 0;
  for (int c = 0; c < 3; c++) rgb[c] = 1 << (PilTaps::PRECISION - 1);
  for (int line = y.first; line < y.end; line++) {
    const uint8_t* from = base + (uint64_t)line * (uint64_t)s.x.source * 3;
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
preprocess_u8(const uint8_t* RESTRICT pixels, const View* RESTRICT views,
              const int* RESTRICT num_images, real* RESTRICT x, Transform transform) {
  preprocess(Bilinear{}, Plain{}, pixels, views, num_images, x, transform);
}

KERNEL(256)
preprocess_colours_u8(const uint8_t* RESTRICT pixels, const View* RESTRICT views,
                      const int* RESTRICT num_images, const float4* RESTRICT colours,
                      real* RESTRICT x, Transform transform) {
  preprocess(Bilinear{}, Colours{colours}, pixels, views, num_images, x, transform);
}

struct Pil {
  DEVICE void operator()(const Source& s, float (&values)[3]) const {
    int rgb[3];
    pil_pixel(s, rgb);
    values[0] = (float)(s.bgr ? rgb[2] : rgb[0]);
    values[1] = (float)rgb[1];
    values[2] = (float)(s.bgr ? rgb[0] : rgb[2]);
  }
};

KERNEL(256)
preprocess_pil_u8(const uint8_t* RESTRICT pixels, const View* RESTRICT views,
                  const int* RESTRICT num_images, real* RESTRICT x, Transform transform) {
  preprocess(Pil{}, Plain{}, pixels, views, num_images, x, transform);
}

KERNEL(256)
preprocess_pil_colours_u8(const uint8_t* RESTRICT pixels, const View* RESTRICT views,
                          const int* RESTRICT num_images, const float4* RESTRICT colours,
                          real* RESTRICT x, Transform transform) {
  preprocess(Pil{}, Colours{colours}, pixels, views, num_images, x, transform);
}
