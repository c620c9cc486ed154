// Operands with any channel counts: k runs over taps and channels without padding, and chunks are
// gathered element by element, each with its own address.
#pragma once
#include "conv.cuh"
#include "real.cuh"
#include "tile.cuh"

// Walks k: tap (r, s) and channel c of a value.
struct Walk {
  int r, s, c, channels, columns;
  DEVICE Walk() {}
  DEVICE Walk(Taps taps, int channels, int k) : channels(channels), columns(taps.columns) {
    const int tap = channels ? k / channels : 0;
    c = k - tap * channels;
    r = columns ? tap / columns : 0;
    s = tap - r * columns;
  }
  DEVICE void advance(int by) {
    c += by;
    while (c >= channels) {
      c -= channels;
      if (++s == columns) {
        s = 0;
        r++;
      }
    }
  }
};

// A chunk of values that need not be contiguous: value(e) for e = 0 .. 7.
template <class F>
DEVICE Real8 gathered(F value) {
#ifdef REAL_IS_FLOAT
  Real8 chunk;
#pragma unroll
  for (int e = 0; e < CHUNK; e++) chunk.of[e] = value(e);
  return chunk;
#else
  unsigned words[CHUNK / 2];
#pragma unroll
  for (int e = 0; e < CHUNK; e += 2) {
    const unsigned low = __half_as_ushort(value(e)), high = __half_as_ushort(value(e + 1));
    words[e / 2] = low | high << 16;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
#endif
}

// The chunk of `line` at `first`, of `len` values; zeros past the end.
DEVICE Real8 gathered_run(const real* line, int first, int len) {
  return gathered([=](int e) { return first + e < len ? line[first + e] : real_of(0.0f, 0); });
}

// Counterpart of WindowRows of stepped.cuh.
template <class Layout>
struct GatheredWindowRows {
  const real* map;
  int height, width, pitch, apart;  // pixels between adjacent taps
  Taps taps;
  Walk walk;
  int64_t corner[Layout::PER_THREAD];  // element of the window's first tap, even if outside
  int top[Layout::PER_THREAD], left[Layout::PER_THREAD];

  template <class Place>
  DEVICE GatheredWindowRows(const real* map, int height, int width, int pitch, Taps taps, int apart,
                            int channels, int k_block, int first_row, Place place)
      : map(map),
        height(height),
        width(width),
        pitch(pitch),
        apart(apart),
        taps(taps),
        walk(taps, channels, k_block * Layout::DEPTH + Layout::chunk(0) * CHUNK) {
#pragma unroll
    for (int i = 0; i < Layout::PER_THREAD; i++) {
      int image = 0;
      if (!place(first_row + Layout::line(i), image, top[i], left[i])) {
        top[i] = left[i] = -(1 << 30);  // outside for every tap
      }
      corner[i] = (((int64_t)image * height + top[i]) * width + left[i]) * pitch;
    }
  }
  DEVICE Real8 gather(int i) const {
    Walk at = walk;
    return gathered([&](int) {
      const bool inside = (unsigned)(top[i] + at.r * apart) < (unsigned)height &&
                          (unsigned)(left[i] + at.s * apart) < (unsigned)width;
      const int tap = (at.r * width + at.s) * apart * pitch + at.c;
      const real value = at.r < taps.rows && inside ? map[corner[i] + tap] : real_of(0.0f, 0);
      at.advance(1);
      return value;
    });
  }
  DEVICE void next() { walk.advance(Layout::DEPTH); }
};

template <class Layout>
struct GatheredFilterRows {
  const real* filter;  // of the thread's first line
  int lines, len, k;   // lines from the thread's first to the last; values per filter

  template <class C>
  DEVICE GatheredFilterRows(const real* w, const C& conv, int k_block, int first_column)
      : lines(conv.filters - first_column - Layout::line(0)),
        len(conv.filter_len()),
        k(k_block * Layout::DEPTH + Layout::chunk(0) * CHUNK) {
    filter = w + (int64_t)(conv.filters - lines) * len;
  }
  DEVICE Real8 gather(int i) const {
    const int line = i * Layout::STRIDE;
    return gathered_run(filter + (int64_t)line * len, k, line < lines ? len : 0);
  }
  DEVICE void next() { k += Layout::DEPTH; }
};

template <class Layout>
struct GatheredFilterColumns {
  const real* w;
  int first_column, channels, filters, len, kernel_w, stride, columns, last_r, last_s, taps, k;

  template <class C>
  DEVICE GatheredFilterColumns(const real* w, const C& conv, const ResidueAxis& y,
                               const ResidueAxis& x, int k_block, int first_column)
      : w(w),
        first_column(first_column),
        channels(conv.group_channels()),
        filters(conv.group_filters()),
        len(conv.filter_len()),
        kernel_w(conv.kernel_w),
        stride(conv.stride),
        columns(x.taps),
        last_r(y.tap + (y.taps - 1) * stride),
        last_s(x.tap + (x.taps - 1) * stride),
        taps(y.taps * x.taps),
        k(k_block * Layout::DEPTH + Layout::line(0)) {}
  DEVICE Real8 gather(int i) const {
    const int tap = k / filters, r = tap / columns, s = tap - r * columns;
    const int at = ((last_r - r * stride) * kernel_w + last_s - s * stride) * channels;
    const real* line = w + ((int64_t)(k - tap * filters) * len + at);
    return gathered_run(line, first_column + Layout::chunk(i) * CHUNK, tap < taps ? channels : 0);
  }
  DEVICE void next() { k += Layout::DEPTH; }
};

// Both operands of a pass with k over taps and channels.
template <class LeftRows, class RightLines>
struct GatheredTapOperands {
  LeftRows windows;
  RightLines filters;

  DEVICE Real8 left(int i) const { return windows.gather(i); }
  DEVICE Real8 right(int i) const { return filters.gather(i); }
  DEVICE void next() {
    windows.next();
    filters.next();
  }
};

// Counterpart of PositionOperands of stepped.cuh.
template <class Left, class Right, class C>
struct GatheredPositionOperands {
  const real *x, *g;
  const C& conv;
  Divisor per_image, per_line;
  int pitch, position, end, first_row;
  Walk first[Right::PER_THREAD];  // column of a chunk

  DEVICE GatheredPositionOperands(const real* x, const real* g, const C& conv, int pitch,
                                  Divisor per_image, Divisor per_line, int end, Share share,
                                  int first_row, int first_column)
      : x(x),
        g(g),
        conv(conv),
        per_image(per_image),
        per_line(per_line),
        pitch(pitch),
        position(share.first * Left::DEPTH + Left::line(0)),
        end(end),
        first_row(first_row) {
#pragma unroll
    for (int i = 0; i < Right::PER_THREAD; i++)
      first[i] = Walk({conv.kernel_h, conv.kernel_w}, conv.group_channels(),
                      first_column + Right::chunk(i) * CHUNK);
  }
  DEVICE Real8 left(int i) const {
    const real* line = g + (int64_t)position * pitch;
    return gathered_run(line, first_row + Left::chunk(i) * CHUNK,
                        position < end ? conv.filters : 0);
  }
  DEVICE Real8 right(int i) const {
    int in_image, q;
    const int image = per_image.quotient(position, in_image);
    const int top = per_line.quotient(in_image, q) * conv.stride - conv.pad;
    const int left = q * conv.stride - conv.pad;
    Walk walk = first[i];
    return gathered([&](int) {
      int h = top + walk.r, w = left + walk.s;
      if constexpr (C::GROUPED) h += conv.gap() * walk.r, w += conv.gap() * walk.s;
      const bool valid = position < end && walk.r < conv.kernel_h &&
                         (unsigned)h < (unsigned)conv.height && (unsigned)w < (unsigned)conv.width;
      const int64_t pixel = (int64_t)(image * conv.height + h) * conv.width + w;
      const real value = valid ? x[pixel * conv.channels + walk.c] : real_of(0.0f, 0);
      walk.advance(1);
      return value;
    });
  }
  DEVICE void next() { position += Left::DEPTH; }
};
