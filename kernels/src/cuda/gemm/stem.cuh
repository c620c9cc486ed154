// Loader of the stem's windows from images with four channels. A row of the 7x7 window, extended by
// one pixel to the left, has 8 pixels, 64 bytes: one k-block. Windows step by two pixels, so with
// an even width each of its four two-pixel chunks is aligned, and entirely inside or outside of the
// image.
#pragma once
#include "passes.cuh"

constexpr int STEM_CHANNELS = 4;
constexpr int STEM_ROW = 8 * STEM_CHANNELS;  // values per window row

// Rows of D are positions, k the pixels and channels of each window row.
template <class Layout>
struct StemRows {
  static constexpr int DEPTH = Layout::DEPTH;
  static_assert(STEM_ROW == DEPTH, "a row of the window is a k-block");
  const half* at[Layout::PER_THREAD];
  unsigned lacks[Layout::PER_THREAD];
  Steps steps;

  DEVICE StemRows(const half* map, const Conv& conv, int first_row) {
    const int per_image = conv.out_height * conv.out_width;
    constexpr int PIXELS = CHUNK / STEM_CHANNELS;
    steps.within = steps.tap = steps.row = conv.width * STEM_CHANNELS;
#pragma unroll
    for (int i = 0; i < Layout::PER_THREAD; i++) {
      const int row = first_row + Layout::line(i);
      const int image = row / per_image, p = row % per_image / conv.out_width;
      const int left = row % conv.out_width * conv.stride - conv.pad - 1;
      const int top = p * conv.stride - conv.pad, column = left + Layout::chunk(0) * PIXELS;
      const bool exists = image < conv.images && column >= 0 && column < conv.width;
      lacks[i] = exists ? taps_outside(top, conv.height) << ROW_BITS | PAST : ~0u;
      at[i] = map + (((int64_t)image * conv.height + top) * conv.width + column) * STEM_CHANNELS;
    }
  }
  DEVICE Chunk chunk(int i, unsigned asks) const { return chunk_if(!(lacks[i] & asks), at[i]); }
  DEVICE void move(int by) {
#pragma unroll
    for (int i = 0; i < Layout::PER_THREAD; i++) at[i] += by;
  }
};

// The forward pass of the stem; `conv` has a tap of STEM_ROW channels for each row of the window.
struct Stem {
  const half *x, *arranged;
  const Conv& conv;
  int rows, out_rows, columns;
  using Place = SameRow;
  template <class T>
  using Left = typename T::template AsRows<T::ROWS>;
  template <class T>
  using Right = typename T::template AsRows<T::COLUMNS>;

  DEVICE Stem(const half* x, const half* arranged, const Conv& conv)
      : x(x), arranged(arranged), conv(conv), columns(conv.filters) {
    rows = out_rows = conv.images * conv.out_height * conv.out_width;
  }
  template <class T>
  DEVICE Share share() const {
    return {0, conv.kernel_h};
  }
  template <class T>
  DEVICE auto operands(Share share, int first_row, int first_column) const {
    const TapWalk<T::DEPTH> walk({conv.kernel_h, 1}, STEM_ROW, share);
    return TapOperands<StemRows<Left<T>>, FilterRows<Right<T>>>{
        walk, {x, conv, first_row}, {arranged, conv, walk, first_column}};
  }
};
