// The operands of the forward pass, as loaders.cuh has them, for any depth and order of k
// (`Walked...`), and with addresses that are kept and stepped (`Stepped...`). Channel counts are
// multiples of 8 for the first kind, of the depth for the second.
#pragma once
#include "switches.cuh"

namespace probe {

template <bool FIRST, class A, class B>
struct Either {
  using Type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using Type = B;
};

// Walks k: tap (r, s) and the k-block's first channel c.
template <class S>
struct KWalk {
  int r, s, c;
  DEVICE void next(const Conv& conv) {
    if constexpr (S::TAPS_INNER) {
      tap(conv);
      if (r == conv.kernel_h) r = 0, c += S::DEPTH;
    } else {
      c += S::DEPTH;
      if (c >= conv.channels) {
        c = 0;
        tap(conv);
      }
    }
  }
  DEVICE void tap(const Conv& conv) {
    if (++s == conv.kernel_w) {
      s = 0;
      r++;
    }
  }
};

template <class Layout, class S>
struct WalkedWindows {
  const half* map;
  const Conv& conv;
  KWalk<S> walk{0, 0, 0};
  // A thread has twice the rows where the depth is 64: with 64 bits each it would spill. No tensor
  // has more than 2^31 elements (device/gemm.rs).
  using Corner = typename Either<S::DEPTH == 64, int, int64_t>::Type;
  Corner corner[Layout::PER_THREAD];  // element of the window's first tap, were it inside
  int top[Layout::PER_THREAD], left[Layout::PER_THREAD];

  template <class Place>
  DEVICE WalkedWindows(const half* map, const Conv& conv, int first_row, Place place)
      : map(map), conv(conv) {
#pragma unroll
    for (int i = 0; i < Layout::PER_THREAD; i++) {
      int image = 0;
      if (!place(first_row + Layout::line() + i * Layout::STRIDE, image, top[i], left[i])) {
        top[i] = left[i] = -(1 << 30);  // outside under every tap
      }
      corner[i] = (((Corner)image * conv.height + top[i]) * conv.width + left[i]) * conv.channels;
    }
  }
  DEVICE Chunk chunk(int i) const {
    const int c = walk.c + Layout::chunk() * CHUNK;
    const bool valid = (unsigned)(top[i] + walk.r) < (unsigned)conv.height &&
                       (unsigned)(left[i] + walk.s) < (unsigned)conv.width && c < conv.channels;
    const int tap = (walk.r * conv.width + walk.s) * conv.channels + c;
    return {valid ? map + (corner[i] + tap) : map, valid ? 16 : 0};
  }
  DEVICE void next() { walk.next(conv); }
};

template <class Layout, class S>
struct WalkedFilters {
  const half* filter;  // of the thread's first line
  const Conv& conv;
  int lines;  // lines from there that exist
  KWalk<S> walk{0, 0, 0};

  DEVICE WalkedFilters(const half* w, const Conv& conv, int first_column)
      : conv(conv), lines(conv.filters - first_column - Layout::line()) {
    filter = w + (int64_t)(conv.filters - lines) * conv.filter_len();
  }
  DEVICE const half* line(int i) const {
    return filter + (int64_t)(i * Layout::STRIDE) * conv.filter_len();
  }
  DEVICE Chunk chunk(int i) const {
    const int c = Layout::chunk() * CHUNK;
    const int k = (walk.r * conv.kernel_w + walk.s) * conv.channels + walk.c;
    const bool valid = i * Layout::STRIDE < lines && walk.c + c < conv.channels;
    return {line(valid ? i : 0) + (valid ? k + c : 0), valid ? 16 : 0};
  }
  DEVICE void next() { walk.next(conv); }
};

// Where in k the stepped operands stand, and how far their addresses go to the next k-block: a
// number for each kind of step, made once. All threads agree on it.
template <class S>
struct KSteps {
  unsigned tap = 1;  // bit of the tap; past the end none of a mask
  int s = 0, c = 0, kernel_w, channels;
  unsigned past;  // the bit behind the last tap
  int in_row, to_row, to_channels, filter_to_channels;

  DEVICE KSteps(const Conv& conv)
      : kernel_w(conv.kernel_w),
        channels(conv.channels),
        past(1u << conv.kernel_h * conv.kernel_w) {
    const int line = conv.width * conv.channels, end = (conv.kernel_w - 1) * conv.channels;
    if constexpr (S::TAPS_INNER) {
      in_row = conv.channels;
      to_row = line - end;
      to_channels = S::DEPTH - (conv.kernel_h - 1) * line - end;
      filter_to_channels = S::DEPTH - (conv.kernel_h * conv.kernel_w - 1) * conv.channels;
    } else {
      // The channels of a pixel lie before those of the next: a step is a step.
      in_row = to_channels = filter_to_channels = S::DEPTH;
      to_row = line - end - conv.channels + S::DEPTH;
    }
  }
  // Steps on, and gives how far that is in x and in the filters.
  DEVICE void next(int& window, int& filter) {
    if constexpr (S::TAPS_INNER) {
      window = filter = in_row;
      tap <<= 1;
      if (++s == kernel_w) s = 0, window = to_row;
      if (tap == past) {
        c += S::DEPTH;
        tap = c == channels ? 0 : 1;
        window = to_channels, filter = filter_to_channels;
      }
    } else {
      window = filter = S::DEPTH;
      c += S::DEPTH;
      if (c == channels) {
        c = 0, tap <<= 1;
        if (++s == kernel_w) s = 0, window = to_row;
      }
    }
  }
};

template <class Layout>
struct SteppedWindows {
  const half* at[Layout::PER_THREAD];
  unsigned inside[Layout::PER_THREAD];  // a bit for each tap; at most 31 taps

  template <class Place>
  DEVICE SteppedWindows(const half* map, const Conv& conv, int first_row, Place place) {
#pragma unroll
    for (int i = 0; i < Layout::PER_THREAD; i++) {
      int image = 0, top = 0, left = 0;
      const bool there = place(first_row + Layout::line() + i * Layout::STRIDE, image, top, left);
      inside[i] = 0;
      for (int r = 0, bit = 0; there && r < conv.kernel_h; r++)
        for (int s = 0; s < conv.kernel_w; s++, bit++)
          if ((unsigned)(top + r) < (unsigned)conv.height &&
              (unsigned)(left + s) < (unsigned)conv.width)
            inside[i] |= 1u << bit;
      const int64_t pixel = ((int64_t)image * conv.height + top) * conv.width + left;
      at[i] = map + (pixel * conv.channels + Layout::chunk() * CHUNK);
    }
  }
};

// One address is kept: rows of the filters are one number of bytes apart, those of windows are not.
template <class Layout>
struct SteppedFilters {
  const half* at;
  int64_t apart;
  int lines;  // from the thread's first that exist

  DEVICE SteppedFilters(const half* w, const Conv& conv, int first_column)
      : apart((int64_t)Layout::STRIDE * conv.filter_len()),
        lines(conv.filters - first_column - Layout::line()) {
    at = w + ((int64_t)(conv.filters - lines) * conv.filter_len() + Layout::chunk() * CHUNK);
  }
  DEVICE Chunk chunk(int i) const { return {at + i * apart, i * Layout::STRIDE < lines ? 16 : 0}; }
};

// Both operands: `window(i)` and `filter(i)` are the thread's chunks of the next k-block.
template <class Left, class Right, class S>
struct Walked {
  WalkedWindows<Left, S> windows;
  WalkedFilters<Right, S> filters;
  template <class Place>
  DEVICE Walked(const half* x, const half* w, const Conv& conv, int first_row, int first_column,
                Place place)
      : windows(x, conv, first_row, place), filters(w, conv, first_column) {}
  DEVICE Chunk window(int i) const { return windows.chunk(i); }
  DEVICE Chunk filter(int i) const { return filters.chunk(i); }
  DEVICE void next_windows() { windows.next(); }
  DEVICE void next_filters() { filters.next(); }
};

template <class Left, class Right, class S>
struct Stepped {
  SteppedWindows<Left> windows;
  SteppedFilters<Right> filters;
  KSteps<S> steps;
  template <class Place>
  DEVICE Stepped(const half* x, const half* w, const Conv& conv, int first_row, int first_column,
                 Place place)
      : windows(x, conv, first_row, place), filters(w, conv, first_column), steps(conv) {}
  DEVICE Chunk window(int i) const {
    return {windows.at[i], windows.inside[i] & steps.tap ? 16 : 0};
  }
  DEVICE Chunk filter(int i) const { return filters.chunk(i); }
  DEVICE void next_windows() {}
  DEVICE void next_filters() {
    int window, filter;
    steps.next(window, filter);
#pragma unroll
    for (int i = 0; i < Left::PER_THREAD; i++) windows.at[i] += window;
    filters.at += filter;
  }
};

template <class Left, class Right, class S>
using Operands =
    typename Either<S::POINTERS, Stepped<Left, Right, S>, Walked<Left, Right, S>>::Type;

}  // namespace probe
