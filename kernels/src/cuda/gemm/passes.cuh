// Passes: a convolution as an implicit GEMM. A pass depends on shapes and padding, but not on the
// main loop. It has
//
//   Left<T>, Right<T>           the layouts of its operands in a stage of tile T
//   rows, columns               the extents of D, without the rows of images past the count
//   out_rows                    the rows of the output, and of each split's partial sums
//   Place                       a function, built from the pass: maps a row of D to the output
//   share<T>()                  the k-blocks of the block
//   operands<T>(share, first_row, first_column)
//                               the loader of these k-blocks: computes which 16 bytes of global
//                               memory, or which values, belong where in a stage
//
// Values outside (padding, tails, images past the count) are zeros that are not read. Tiles that
// are not GATHERED require channel counts that are multiples of 8, and kernels of at most MAX_TAPS
// rows and columns. C is Conv or GroupedConv; a tile is within one group.
#pragma once
#include "gathered.cuh"
#include "stepped.cuh"

// The Place of a pass whose rows of D are the rows of the output.
struct SameRow {
  template <class Pass>
  DEVICE explicit SameRow(const Pass&) {}
  DEVICE int operator()(int row) const { return row; }
};

// Rows of D are the N*P*Q positions, its columns the K filters; k runs over taps and C. A linear
// layer is the 1x1 case on 1x1 images.
template <class C>
struct Forward {
  const real *x, *w;
  const C& conv;
  int per_image, rows, out_rows, columns;
  using Place = SameRow;
  template <class T>
  using Left = typename T::template AsRows<T::ROWS>;
  template <class T>
  using Right = typename T::template AsRows<T::COLUMNS>;

  DEVICE Forward(const real* x, const real* w, const int* count, const C& conv)
      : x(x), w(w), conv(conv), per_image(conv.out_height * conv.out_width), columns(conv.filters) {
    rows = used_images(count, conv.images) * per_image;
    out_rows = conv.images * per_image;
  }
  DEVICE Taps taps() const { return {conv.kernel_h, conv.kernel_w}; }
  template <class T>
  DEVICE Share share() const {
    return share_of(taps().k_blocks(conv.group_channels(), T::DEPTH, !T::GATHERED));
  }
  template <class T>
  DEVICE auto operands(Share share, int first_row, int first_column) const {
    auto window = [&](int row, int& image, int& top, int& left) {
      image = row / per_image;
      const int p = row % per_image / conv.out_width, q = row % per_image % conv.out_width;
      top = p * conv.stride - conv.pad;
      left = q * conv.stride - conv.pad;
      return row < rows;
    };
    const real* map = x;
    int apart = 1;
    if constexpr (C::GROUPED) {
      map += first_column / conv.group_filters() * conv.group_channels();
      apart = conv.dilation;
    }
    if constexpr (T::GATHERED) {
      return GatheredTapOperands<GatheredWindowRows<Left<T>>, GatheredFilterRows<Right<T>>>{
          {map, conv.height, conv.width, conv.channels, taps(), apart, conv.group_channels(),
           share.first, first_row, window},
          {w, conv, share.first, first_column}};
    } else {
      const TapWalk<T::DEPTH> walk(taps(), conv.group_channels(), share);
      return TapOperands<WindowRows<Left<T>>, FilterRows<Right<T>>>{
          walk,
          {map, conv.height, conv.width, conv.channels, taps(), conv, walk, first_row, window},
          {w, conv, walk, first_column}};
    }
  }
};

// Rows of D are the positions of x of residue class blockIdx.y, its columns the C channels; k runs
// over the class's taps and K. A row of g has `pitch` values.
template <class C>
struct GradInput {
  const real *g, *w;
  const C& conv;
  int pitch;
  ResidueAxis y, x;
  int per_image, rows, out_rows, columns;
  struct Place {
    const GradInput& of;
    DEVICE explicit Place(const GradInput& of) : of(of) {}
    DEVICE int operator()(int row) const {
      if (of.conv.stride == 1) return row;
      const int image = row / of.per_image, line = row % of.per_image / of.x.extent;
      const int h = of.y.first + line * of.conv.stride;
      const int w = of.x.first + row % of.per_image % of.x.extent * of.conv.stride;
      return (image * of.conv.height + h) * of.conv.width + w;
    }
  };
  template <class T>
  using Left = typename T::template AsRows<T::ROWS>;
  template <class T>
  using Right = typename T::template AsColumns<T::COLUMNS>;

  DEVICE GradInput(const real* g, const real* w, const int* count, const C& conv, bool padded)
      : g(g),
        w(w),
        conv(conv),
        pitch(conv.gradient_pitch(padded)),
        y(blockIdx.y / conv.stride, conv.stride, conv.pad, conv.kernel_h, conv.height),
        x(blockIdx.y % conv.stride, conv.stride, conv.pad, conv.kernel_w, conv.width),
        per_image(y.extent * x.extent),
        columns(conv.channels) {
    rows = used_images(count, conv.images) * per_image;
    out_rows = conv.images * conv.height * conv.width;
  }
  DEVICE Taps taps() const { return {y.taps, x.taps}; }
  template <class T>
  DEVICE Share share() const {
    return share_of(taps().k_blocks(conv.group_filters(), T::DEPTH, !T::GATHERED));
  }
  template <class T>
  DEVICE auto operands(Share share, int first_row, int first_column) const {
    auto window = [&](int row, int& image, int& top, int& left) {
      image = row / per_image;
      top = row % per_image / x.extent + y.reach - (y.taps - 1);
      left = row % per_image % x.extent + x.reach - (x.taps - 1);
      if constexpr (C::GROUPED) {
        top -= conv.gap() * (y.taps - 1), left -= conv.gap() * (x.taps - 1);
      }
      return row < rows;
    };
    const real *map = g, *filters = w;
    int apart = 1, column = first_column;
    if constexpr (C::GROUPED) {
      const int first = column / conv.group_channels() * conv.group_filters();
      map += first, filters += (int64_t)first * conv.filter_len();
      apart = conv.dilation, column %= conv.group_channels();
    }
    if constexpr (T::GATHERED) {
      return GatheredTapOperands<GatheredWindowRows<Left<T>>, GatheredFilterColumns<Right<T>>>{
          {map, conv.out_height, conv.out_width, conv.filters, taps(), apart, conv.group_filters(),
           share.first, first_row, window},
          {filters, conv, y, x, share.first, column}};
    } else {
      const TapWalk<T::DEPTH> walk(taps(), conv.group_filters(), share);
      return TapOperands<WindowRows<Left<T>>, FilterColumns<Right<T>>>{
          walk,
          {map, conv.out_height, conv.out_width, pitch, taps(), conv, walk, first_row, window},
          {filters, conv, y, x, walk, column}};
    }
  }
};

// Rows of D are the K filters, its columns taps and C; k runs over the N*P*Q positions within the
// count. `per_image` and `per_line` divide a position into image, p and q.
template <class C>
struct GradWeight {
  const real *x, *g;
  const C& conv;
  int pitch;
  Divisor per_image, per_line;
  int positions, rows, out_rows, columns;
  using Place = SameRow;
  template <class T>
  using Left = typename T::template AsColumns<T::ROWS>;
  template <class T>
  using Right = typename T::template AsColumns<T::COLUMNS>;

  DEVICE GradWeight(const real* x, const real* g, const int* count, const C& conv, bool padded,
                    Divisor per_image, Divisor per_line)
      : x(x),
        g(g),
        conv(conv),
        pitch(conv.gradient_pitch(padded)),
        per_image(per_image),
        per_line(per_line),
        positions(used_images(count, conv.images) * conv.out_height * conv.out_width),
        columns(conv.filter_len()) {
    rows = out_rows = conv.filters;
  }
  template <class T>
  DEVICE Share share() const {
    return share_of(ceil_div(positions, T::DEPTH));
  }
  template <class T>
  DEVICE auto operands(Share share, int first_row, int first_column) const {
    int of_group = 0;
    if constexpr (C::GROUPED)
      of_group = first_row / conv.group_filters() * conv.group_channels();
    const real* map = x + of_group;
    if constexpr (T::GATHERED) {
      return GatheredPositionOperands<Left<T>, Right<T>, C>(map, g, conv, pitch, per_image,
                                                            per_line, positions, share, first_row,
                                                            first_column);
    } else {
      return PositionOperands<Left<T>, Right<T>>(map, g, conv, pitch, per_image, per_line,
                                                 positions, share, first_row, first_column);
    }
  }
};
