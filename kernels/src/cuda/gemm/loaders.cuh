// Loaders: which 16 bytes of global memory belong where in a stage. They know shapes and padding,
// and nothing of the product. What lies outside (padding, tails, images past the count) is zeros
// that are not read. ALIGNED asks for channel counts that are multiples of 8, so that a chunk is
// 16 aligned bytes of one kernel tap, and walks k tap by tap in k-blocks of DEPTH channels.
// Without it k is one run over taps and channels, and chunks are gathered value by value.
#pragma once
#include "conv.cuh"
#include "multiply.cuh"

DEVICE half zero_half() { return __ushort_as_half(0); }

// Taps of a kernel, or of one residue class of it, and the k-blocks that they make: `channels`
// values for each tap, tap after tap.
struct Taps {
  int rows, columns;
  DEVICE int k_blocks(int channels, bool aligned) const {
    return aligned ? rows * columns * ceil_div(channels, DEPTH)
                   : ceil_div(rows * columns * channels, DEPTH);
  }
};

// Walks k: tap (r, s) and channel c. With ALIGNED, c is the k-block's first channel and all threads
// agree; without, c is the thread's own.
template <bool ALIGNED>
struct Walk {
  int r, s, c, channels, columns;
  // Stands at `k_block`, and without ALIGNED `offset` values into it.
  DEVICE Walk(Taps taps, int channels, int k_block, int offset)
      : channels(channels), columns(taps.columns) {
    int tap;
    if constexpr (ALIGNED) {
      const int per_tap = ceil_div(channels, DEPTH);
      tap = per_tap ? k_block / per_tap : 0;
      c = (k_block - tap * per_tap) * DEPTH;
    } else {
      const int k = k_block * DEPTH + offset;
      tap = channels ? k / channels : 0;
      c = k - tap * channels;
    }
    r = columns ? tap / columns : 0;
    s = tap - r * columns;
  }
  // Stands at a tap and channel.
  DEVICE Walk(Taps taps, int channels, int r, int s, int c)
      : r(r), s(s), c(c), channels(channels), columns(taps.columns) {}
  DEVICE void advance(int by) {
    c += by;
    if constexpr (ALIGNED) {
      if (c >= channels) {
        c = 0;
        tap();
      }
    } else {
      while (c >= channels) {
        c -= channels;
        tap();
      }
    }
  }
  DEVICE void tap() {
    if (++s == columns) {
      s = 0;
      r++;
    }
  }
};

// A chunk of values that need not lie side by side: value(e) for e = 0 .. 7.
template <class F>
DEVICE uint4 gathered(F value) {
  unsigned words[CHUNK / 2];
#pragma unroll
  for (int e = 0; e < CHUNK; e += 2) {
    const unsigned low = __half_as_ushort(value(e)), high = __half_as_ushort(value(e + 1));
    words[e / 2] = low | high << 16;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// The chunk of `line` from `first`, of `len` values; zeros past them.
DEVICE uint4 gathered_run(const half* line, int first, int len) {
  return gathered([=](int e) { return first + e < len ? line[first + e] : zero_half(); });
}

// Rows of D are positions, k are the channels under each tap of the window there: the left operand
// of the forward pass and of the input's gradient. `map` is [N, height, width, channels].
template <class Layout, bool ALIGNED_>
struct WindowRows {
  static constexpr bool ALIGNED = ALIGNED_;
  const half* map;
  int height, width;
  Taps taps;
  Walk<ALIGNED> walk;
  int64_t corner[Layout::PER_THREAD];  // element of the window's first tap, were it inside
  int top[Layout::PER_THREAD], left[Layout::PER_THREAD];

  // `place(row, image, top, left)` gives the window of a row of D, or false for none.
  template <class Place>
  DEVICE WindowRows(const half* map, int height, int width, int channels, Taps taps, int k_block,
                    int first_row, Place place)
      : map(map),
        height(height),
        width(width),
        taps(taps),
        walk(taps, channels, k_block, Layout::chunk() * CHUNK) {
#pragma unroll
    for (int i = 0; i < Layout::PER_THREAD; i++) {
      int image = 0;
      if (!place(first_row + Layout::line() + i * Layout::STRIDE, image, top[i], left[i])) {
        top[i] = left[i] = -(1 << 30);  // outside under every tap
      }
      corner[i] = (((int64_t)image * height + top[i]) * width + left[i]) * channels;
    }
  }
  DEVICE bool inside(int i, int r, int s) const {
    return (unsigned)(top[i] + r) < (unsigned)height && (unsigned)(left[i] + s) < (unsigned)width;
  }
  DEVICE Chunk chunk(int i) const {
    const int c = walk.c + Layout::chunk() * CHUNK;
    const bool valid = inside(i, walk.r, walk.s) && c < walk.channels;
    const int tap = (walk.r * width + walk.s) * walk.channels + c;
    return {valid ? map + (corner[i] + tap) : map, valid ? 16 : 0};
  }
  DEVICE uint4 gather(int i) const {
    Walk<false> at = walk;
    return gathered([&](int) {
      const bool valid = at.r < taps.rows && inside(i, at.r, at.s);
      const int tap = (at.r * width + at.s) * at.channels + at.c;
      const half value = valid ? map[corner[i] + tap] : zero_half();
      at.advance(1);
      return value;
    });
  }
  DEVICE void next() { walk.advance(DEPTH); }
};

// Columns of D are filters, k their taps and channels: the right operand of the forward pass.
template <class Layout, bool ALIGNED_>
struct FilterRows {
  static constexpr bool ALIGNED = ALIGNED_;
  const half* filter;  // of the thread's first line
  int lines, len;      // lines from there that exist; values of a filter
  Walk<ALIGNED> walk;

  DEVICE FilterRows(const half* w, const Conv& conv, int k_block, int first_column)
      : lines(conv.filters - first_column - Layout::line()),
        len(conv.filter_len()),
        walk({conv.kernel_h, conv.kernel_w}, conv.channels, k_block, Layout::chunk() * CHUNK) {
    filter = w + (int64_t)(conv.filters - lines) * len;
  }
  DEVICE int k() const { return (walk.r * walk.columns + walk.s) * walk.channels + walk.c; }
  DEVICE const half* line(int i) const { return filter + (int64_t)(i * Layout::STRIDE) * len; }
  DEVICE Chunk chunk(int i) const {
    const int c = Layout::chunk() * CHUNK;
    const bool valid = i * Layout::STRIDE < lines && walk.c + c < walk.channels;
    return {line(valid ? i : 0) + (valid ? k() + c : 0), valid ? 16 : 0};
  }
  DEVICE uint4 gather(int i) const {
    return gathered_run(line(i), k(), i * Layout::STRIDE < lines ? len : 0);
  }
  DEVICE void next() { walk.advance(DEPTH); }
};

// Columns of D are the channels c of w [K,R,S,C], k are the filters under each tap of a residue
// class, the taps from last to first as the window of the gradient slides the other way: the right
// operand of the input's gradient.
template <class Layout, bool ALIGNED_>
struct FilterColumns {
  static constexpr bool ALIGNED = ALIGNED_;
  const half* w;
  int column, channels, filters, len, kernel_w, stride, last_r, last_s, last_tap, k;
  Walk<true> walk;  // unused without ALIGNED: then k counts

  DEVICE FilterColumns(const half* w, const Conv& conv, const ResidueAxis& y, const ResidueAxis& x,
                       int k_block, int first_column)
      : w(w),
        column(first_column + Layout::chunk() * CHUNK),
        channels(conv.channels),
        filters(conv.filters),
        len(conv.filter_len()),
        kernel_w(conv.kernel_w),
        stride(conv.stride),
        last_r(y.tap + (y.taps - 1) * stride),
        last_s(x.tap + (x.taps - 1) * stride),
        last_tap(y.taps * x.taps - 1),
        k(k_block * DEPTH),
        walk({y.taps, x.taps}, filters, k_block, 0) {}
  DEVICE const half* line(int r, int s, int filter) const {
    const int tap = (last_r - r * stride) * kernel_w + last_s - s * stride;
    return w + ((int64_t)filter * len + tap * channels);
  }
  DEVICE Chunk chunk(int i) const {
    const int filter = walk.c + Layout::line() + i * Layout::STRIDE;
    const bool valid = filter < filters && column < channels;
    return {valid ? line(walk.r, walk.s, filter) + column : w, valid ? 16 : 0};
  }
  DEVICE uint4 gather(int i) const {
    const int at = k + Layout::line() + i * Layout::STRIDE;
    const int tap = at / filters, r = tap / walk.columns;
    return gathered_run(line(r, tap - r * walk.columns, at - tap * filters), column,
                        tap <= last_tap ? channels : 0);
  }
  DEVICE void next() {
    if constexpr (ALIGNED)
      walk.advance(DEPTH);
    else
      k += DEPTH;
  }
};

// Rows of D are the columns of a matrix [positions, columns], k its positions up to `end`: the left
// operand of the weight's gradient.
template <class Layout, bool ALIGNED_>
struct PositionColumns {
  static constexpr bool ALIGNED = ALIGNED_;
  const half* matrix;
  int columns, column, position, end;

  DEVICE PositionColumns(const half* matrix, int columns, int end, int k_block, int first_row)
      : matrix(matrix),
        columns(columns),
        column(first_row + Layout::chunk() * CHUNK),
        position(k_block * DEPTH + Layout::line()),
        end(end) {}
  DEVICE const half* line(int i) const {
    return matrix + (int64_t)(position + i * Layout::STRIDE) * columns;
  }
  DEVICE bool inside(int i) const { return position + i * Layout::STRIDE < end; }
  DEVICE Chunk chunk(int i) const {
    const bool valid = inside(i) && column < columns;
    return {valid ? line(i) + column : matrix, valid ? 16 : 0};
  }
  DEVICE uint4 gather(int i) const {
    return gathered_run(line(i), column, inside(i) ? columns : 0);
  }
  DEVICE void next() { position += DEPTH; }
};

// Columns of D are taps and channels of a filter, k the output positions up to `end` whose windows
// they look at: the right operand of the weight's gradient. `per_image` and `per_line` divide a
// position into image, p and q.
template <class Layout, bool ALIGNED_>
struct WindowColumns {
  static constexpr bool ALIGNED = ALIGNED_;
  const half* x;
  int height, width, channels, kernel_h, kernel_w, stride;
  Divisor per_image, per_line;
  int position, end;
  int r, s, c, top, left;  // of the chunk's first column; its place in the window at p = q = 0

  DEVICE WindowColumns(const half* x, const Conv& conv, Divisor per_image, Divisor per_line,
                       int end, int k_block, int first_column)
      : x(x),
        height(conv.height),
        width(conv.width),
        channels(conv.channels),
        kernel_h(conv.kernel_h),
        kernel_w(conv.kernel_w),
        stride(conv.stride),
        per_image(per_image),
        per_line(per_line),
        position(k_block * DEPTH + Layout::line()),
        end(end) {
    const int column = first_column + Layout::chunk() * CHUNK, tap = column / channels;
    r = tap / kernel_w, s = tap - r * kernel_w, c = column - tap * channels;
    top = r - conv.pad, left = s - conv.pad;
  }
  // Where the window of a line stands: the place of tap (r, s) in x, and its pixel.
  struct Place {
    int image, h, w;
    DEVICE bool inside(int height, int width) const {
      return (unsigned)h < (unsigned)height && (unsigned)w < (unsigned)width;
    }
  };
  DEVICE Place place(int i) const {
    int in_image, q;
    const int image = per_image.quotient(position + i * Layout::STRIDE, in_image);
    const int p = per_line.quotient(in_image, q);
    return {image, p * stride + top, q * stride + left};
  }
  DEVICE const half* pixel(const Place& at) const {
    return x + (int64_t)((at.image * height + at.h) * width + at.w) * channels;
  }
  DEVICE Chunk chunk(int i) const {
    const Place at = place(i);
    const bool valid =
        position + i * Layout::STRIDE < end && r < kernel_h && at.inside(height, width);
    return {valid ? pixel(at) + c : x, valid ? 16 : 0};
  }
  DEVICE uint4 gather(int i) const {
    const bool exists = position + i * Layout::STRIDE < end;
    Place at = place(i);
    Taps taps{kernel_h, kernel_w};
    Walk<false> walk(taps, channels, r, s, c);
    return gathered([&](int) {
      const Place tap{at.image, at.h + walk.r - r, at.w + walk.s - s};
      const bool valid = exists && walk.r < kernel_h && tap.inside(height, width);
      const half value = valid ? pixel(tap)[walk.c] : zero_half();
      walk.advance(1);
      return value;
    });
  }
  DEVICE void next() { position += DEPTH; }
};
