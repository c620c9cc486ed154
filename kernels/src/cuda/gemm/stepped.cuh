// Operands whose chunks are 16 aligned bytes of one kernel tap: channel counts are multiples of 8.
// k is walked tap by tap in k-blocks of DEPTH channels (or positions). Addresses are computed once,
// and advanced by offsets that are the same for all threads. Missing data of a chunk is encoded as
// bits, so that no k-block divides, multiplies or branches.
#pragma once
#include "conv.cuh"
#include "tile.cuh"

// The requirements of a k-block, as bits: its tap's column (from bit 0) and row (from bit 15), TAIL
// if it is the last of its tap and only partly filled with channels, and PAST if it is past the
// end. A chunk has the bit of each requirement for which it lacks data.
constexpr int MAX_TAPS = 14;  // per kernel row or column
constexpr int ROW_BITS = 15;
constexpr unsigned TAIL = 1u << 30, PAST = 1u << 31;

// Taps, starting with the one at position `first`, that are outside of `extent` positions.
DEVICE unsigned taps_outside(int first, int extent) {
  const int low = min(max(-first, 0), MAX_TAPS), high = min(max(extent - first, 0), MAX_TAPS);
  return ((1u << low) - 1) | (((1u << MAX_TAPS) - 1) & ~((1u << high) - 1));
}

// The same for taps that are `apart` positions apart.
DEVICE unsigned taps_outside(int first, int extent, int apart) {
  const int low = min(ceil_div(max(-first, 0), apart), MAX_TAPS);
  const int high = min(ceil_div(max(extent - first, 0), apart), MAX_TAPS);
  return ((1u << low) - 1) | (((1u << MAX_TAPS) - 1) & ~((1u << high) - 1));
}

// Address increments of an operand, in elements: to the next channels, from a tap's last channels
// to the next tap of the row, and to the first tap of the next row.
struct Steps {
  int within, tap, row;
};

// Walks k in k-blocks of DEPTH: `taps` of `channels` each.
template <int DEPTH>
struct TapWalk {
  int c, channels, blocks;  // first channel of the k-block, k-blocks from it on
  int r, s;                 // where it began
  unsigned tap, asks, past_row;

  DEVICE TapWalk(Taps taps, int channels, Share share) : channels(channels), blocks(share.len) {
    const int per_tap = ceil_div(channels, DEPTH), first = per_tap ? share.first / per_tap : 0;
    c = (share.first - first * per_tap) * DEPTH;
    r = taps.columns ? first / taps.columns : 0;
    s = first - r * taps.columns;
    tap = 1u << s | 1u << (ROW_BITS + r);
    past_row = 1u << taps.columns;
    ask();
  }
  // First channel of a tap's last k-block.
  DEVICE int last() const { return (channels - 1) / DEPTH * DEPTH; }
  // TAIL if chunk or line `c` is missing in a tap's last k-block.
  DEVICE unsigned tail_of(int c) const { return last() + c >= channels ? TAIL : 0; }
  DEVICE void ask() {
    asks = tap | (c > channels - DEPTH ? TAIL : 0) | (blocks <= 0 ? PAST : 0);
  }
  // Advances to the next k-block, and returns the increments of two operands.
  DEVICE void next(const Steps& a, const Steps& b, int& by_a, int& by_b) {
    c += DEPTH, blocks--;
    const bool tap_ends = c >= channels;
    const unsigned moved = tap + (tap & ((1u << ROW_BITS) - 1));  // to the next column
    const bool row_ends = tap_ends && (moved & past_row);
    const unsigned row = (tap >> ROW_BITS << (ROW_BITS + 1)) | 1;
    c = tap_ends ? 0 : c;
    tap = row_ends ? row : tap_ends ? moved : tap;
    by_a = row_ends ? a.row : tap_ends ? a.tap : a.within;
    by_b = row_ends ? b.row : tap_ends ? b.tap : b.within;
    ask();
  }
};

// Rows of D are positions, k are the channels under each tap of the window there: the left operand
// of the forward pass and of the input's gradient. `map` is [N, height, width, pitch].
template <class Layout>
struct WindowRows {
  static constexpr int DEPTH = Layout::DEPTH;
  const half* at[Layout::PER_THREAD];
  unsigned lacks[Layout::PER_THREAD];
  Steps steps;

  // `place(row, image, top, left)` gives the window of a row of D, or false for none.
  template <class Place, class C>
  DEVICE WindowRows(const half* map, int height, int width, int pitch, Taps taps, const C& conv,
                    const TapWalk<DEPTH>& walk, int first_row, Place place) {
    const int c = Layout::chunk(0) * CHUNK;
    steps.within = DEPTH;
    steps.tap = pitch - walk.last();
    steps.row = steps.tap + (width - taps.columns) * pitch;
    if constexpr (C::GROUPED) {
      steps.tap += conv.gap() * pitch;
      steps.row += conv.gap() * (width - taps.columns + 1) * pitch;
    }
#pragma unroll
    for (int i = 0; i < Layout::PER_THREAD; i++) {
      int image = 0, top = 0, left = 0;
      const bool exists = place(first_row + Layout::line(i), image, top, left);
      unsigned outside =
          taps_outside(left, width) | taps_outside(top, height) << ROW_BITS | walk.tail_of(c);
      if constexpr (C::GROUPED) {
        outside = taps_outside(left, width, conv.dilation) |
                  taps_outside(top, height, conv.dilation) << ROW_BITS | walk.tail_of(c);
      }
      lacks[i] = exists ? outside | PAST : ~0u;
      int64_t pixel = ((int64_t)image * height + top + walk.r) * width + left + walk.s;
      if constexpr (C::GROUPED) pixel += conv.gap() * (walk.r * width + walk.s);
      at[i] = map + (pixel * pitch + walk.c + c);
    }
  }
  DEVICE Chunk chunk(int i, unsigned asks) const { return chunk_if(!(lacks[i] & asks), at[i]); }
  DEVICE void move(int by) {
#pragma unroll
    for (int i = 0; i < Layout::PER_THREAD; i++) at[i] += by;
  }
};

// Columns of D are filters, k their taps and channels: the right operand of the forward pass.
template <class Layout>
struct FilterRows {
  const half* at;  // of the thread's first line; the others are `apart` elements apart
  int apart, lines;  // lines from the thread's first to the last
  unsigned lacks;
  Steps steps;

  template <class C>
  DEVICE FilterRows(const half* w, const C& conv, const TapWalk<Layout::DEPTH>& walk,
                    int first_column)
      : apart(Layout::STRIDE * conv.filter_len()),
        lines(conv.filters - first_column - Layout::line(0)) {
    const int c = Layout::chunk(0) * CHUNK;
    const int k = (walk.r * conv.kernel_w + walk.s) * conv.group_channels();
    at = w + ((int64_t)(conv.filters - lines) * conv.filter_len() + k + walk.c + c);
    lacks = walk.tail_of(c) | PAST;
    steps.within = Layout::DEPTH;
    steps.tap = steps.row = conv.group_channels() - walk.last();
  }
  DEVICE Chunk chunk(int i, unsigned asks) const {
    return chunk_if(i * Layout::STRIDE < (lacks & asks ? 0 : lines), at + (int64_t)apart * i);
  }
  DEVICE void move(int by) { at += by; }
};

// Columns of D are the channels c of a group's w [K,R,S,C], k are the filters under each tap of a
// residue class, the taps from last to first, as dgrad uses the filter rotated by 180 degrees: the
// right operand of dgrad.
template <class Layout>
struct FilterColumns {
  const half* at;
  int columns;  // from the thread's first to the last
  unsigned lacks;
  Steps steps;

  template <class C>
  DEVICE FilterColumns(const half* w, const C& conv, const ResidueAxis& y, const ResidueAxis& x,
                       const TapWalk<Layout::DEPTH>& walk, int first_column) {
    const int column = first_column + Layout::chunk(0) * CHUNK, line = Layout::line(0);
    const int r = y.tap + (y.taps - 1 - walk.r) * conv.stride;
    const int s = x.tap + (x.taps - 1 - walk.s) * conv.stride;
    const int tap = (r * conv.kernel_w + s) * conv.group_channels(), len = conv.filter_len();
    at = w + ((int64_t)(walk.c + line) * len + tap + column);
    columns = conv.group_channels() - column;
    lacks = walk.tail_of(line) | PAST;
    steps.within = Layout::DEPTH * len;
    steps.tap = -walk.last() * len - conv.stride * conv.group_channels();
    steps.row = steps.tap - (conv.kernel_w - x.taps) * conv.stride * conv.group_channels();
  }
  DEVICE Chunk chunk(int i, unsigned asks) const {
    const int first = i * Layout::APART * CHUNK;
    return chunk_if(first < (lacks & asks ? 0 : columns), at + first);
  }
  DEVICE void move(int by) { at += by; }
};

// Both operands of a pass with k over taps and channels.
template <class LeftRows, class RightLines>
struct TapOperands {
  TapWalk<LeftRows::DEPTH> walk;
  LeftRows windows;
  RightLines filters;

  DEVICE Chunk left(int i) const { return windows.chunk(i, walk.asks); }
  DEVICE Chunk right(int i) const { return filters.chunk(i, walk.asks); }
  DEVICE void next() {
    int by_window, by_filter;
    walk.next(windows.steps, filters.steps, by_window, by_filter);
    windows.move(by_window);
    filters.move(by_filter);
  }
};

// Both operands of wgrad: k are the output positions up to `end`. Rows of D are the columns of g
// [positions, pitch], columns of D are taps and channels of a filter, in the windows of x.
// `per_image` and `per_line` divide a position into image, p and q.
template <class Left, class Right>
struct PositionOperands {
  static constexpr int FAR = -(1 << 30);  // outside for every tap

  const half *g_at, *x_at;  // the thread's line: its first chunk; its window's corner
  int rows, g_step;         // rows of D from the thread's first to the last
  int position, end, blocks;
  int height, width;
  int h, w;        // of the corner in x
  int h_now;       // h, or FAR past the end
  int h_end, w_end;  // limits of h and w: past the last output row and column
  // A k-block advances by images, rows and columns of positions, each with at most one carry.
  int h_step, w_step, x_step;
  int line_carry, image_carry;            // elements that a carry adds to x_step
  int w_carry, h_carry, stride;           // a carry subtracts the first two, adds stride to h
  int tap_h[Right::PER_THREAD], tap_w[Right::PER_THREAD];
  int tap_at[Right::PER_THREAD];          // elements from the corner

  template <class C>
  DEVICE PositionOperands(const half* x, const half* g, const C& conv, int pitch,
                          Divisor per_image, Divisor per_line, int end, Share share, int first_row,
                          int first_column)
      : end(end), blocks(share.len), height(conv.height), width(conv.width), stride(conv.stride) {
    static_assert(Left::PER_THREAD > 0 && Left::APART == Right::APART, "a thread has one line");
    position = share.first * Left::DEPTH + Left::line(0);
    const int row = first_row + Left::chunk(0) * CHUNK;
    rows = conv.filters - row;
    g_step = Left::DEPTH * pitch;
    g_at = g + ((int64_t)position * pitch + row);

    int in_image, q;
    const int image = per_image.quotient(position, in_image);
    h = per_line.quotient(in_image, q) * stride - conv.pad;
    w = q * stride - conv.pad;
    x_at = x + (((int64_t)image * height + h) * width + w) * conv.channels;
    int rest, q_step;
    const int images = per_image.quotient(Left::DEPTH, rest);
    h_step = per_line.quotient(rest, q_step) * stride;
    w_step = q_step * stride;
    x_step = ((images * height + h_step) * width + w_step) * conv.channels;
    w_carry = conv.out_width * stride, h_carry = conv.out_height * stride;
    w_end = w_carry - conv.pad, h_end = h_carry - conv.pad;
    line_carry = (stride * width - w_carry) * conv.channels;
    image_carry = (height - h_carry) * width * conv.channels;
#pragma unroll
    for (int i = 0; i < Right::PER_THREAD; i++) {
      const int column = first_column + Right::chunk(i) * CHUNK;
      const int tap = column / conv.group_channels();
      const int r = tap / conv.kernel_w, s = tap - r * conv.kernel_w;
      tap_h[i] = r < conv.kernel_h ? r : FAR, tap_w[i] = s;
      tap_at[i] = (r * width + s) * conv.channels + column - tap * conv.group_channels();
      if constexpr (C::GROUPED) {
        if (r < conv.kernel_h) tap_h[i] += conv.gap() * r;
        tap_w[i] += conv.gap() * s;
        tap_at[i] += conv.gap() * (r * width + s) * conv.channels;
      }
    }
    place();
  }
  DEVICE void place() { h_now = position < end && blocks > 0 ? h : FAR; }
  DEVICE Chunk left(int i) const {
    const int first = i * Left::APART * CHUNK;
    return chunk_if(first < (h_now == FAR ? 0 : rows), g_at + first);
  }
  DEVICE Chunk right(int i) const {
    const bool inside = (unsigned)(h_now + tap_h[i]) < (unsigned)height &&
                        (unsigned)(w + tap_w[i]) < (unsigned)width;
    return chunk_if(inside, x_at + tap_at[i]);
  }
  DEVICE void next() {
    int by = x_step;
    position += Left::DEPTH, blocks--;
    g_at += g_step;
    w += w_step, h += h_step;
    if (w >= w_end) w -= w_carry, h += stride, by += line_carry;
    if (h >= h_end) h -= h_carry, by += image_carry;
    x_at += by;
    place();
  }
};
