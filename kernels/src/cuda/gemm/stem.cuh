// Loader of the stem's windows from images of four channels. A row of the 7x7 window, begun one
// pixel further left, is 8 pixels, 64 bytes: one k-block. Windows step by two pixels, so with an
// even width its four chunks, two pixels each, are aligned, and inside the image or outside as a
// whole.
#pragma once
#include "conv.cuh"
#include "multiply.cuh"

constexpr int STEM_CHANNELS = 4;
constexpr int STEM_ROW = 8 * STEM_CHANNELS;  // values of a row of the window
static_assert(STEM_ROW == DEPTH, "a row of the window is a k-block");

// Rows of D are positions, k the pixels and channels of each row of the window there.
template <class Layout>
struct StemRows {
  static constexpr bool ALIGNED = true;
  const half* map;
  int height, width, line;
  int64_t from[Layout::PER_THREAD];  // of the thread's chunk in the window's first row
  int top[Layout::PER_THREAD];       // that row; far outside if there is no window
  bool inside[Layout::PER_THREAD];   // columns

  DEVICE StemRows(const half* map, const Conv& conv, int first_row)
      : map(map), height(conv.height), width(conv.width), line(0) {
    const int per_image = conv.out_height * conv.out_width;
    constexpr int PIXELS = CHUNK / STEM_CHANNELS;
#pragma unroll
    for (int i = 0; i < Layout::PER_THREAD; i++) {
      const int row = first_row + Layout::line() + i * Layout::STRIDE;
      const int image = row / per_image, p = row % per_image / conv.out_width;
      const int left = (row % conv.out_width) * conv.stride - conv.pad - 1;
      const int column = left + Layout::chunk() * PIXELS;
      top[i] = image < conv.images ? p * conv.stride - conv.pad : -(1 << 30);
      inside[i] = column >= 0 && column < width;
      from[i] = (((int64_t)image * height + top[i]) * width + column) * STEM_CHANNELS;
    }
  }
  DEVICE Chunk chunk(int i) const {
    const bool valid = inside[i] && (unsigned)(top[i] + line) < (unsigned)height;
    const int64_t at = from[i] + (int64_t)line * width * STEM_CHANNELS;
    return {valid ? map + at : map, valid ? 16 : 0};
  }
  DEVICE void next() { line++; }
};
