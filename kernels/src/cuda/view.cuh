// Maps an image from its source to the network's input: function by function as view.rs, in the
// same order of operations.
#pragma once
#include "platform.cuh"

// An f64 result, rounded to f32 if `narrow`: for f32 operands, it then equals the result of f32
// arithmetic.
DEVICE double as_f32(double value, int narrow) { return narrow ? (double)(float)value : value; }

// An axis: a window of the source is resized, cropped to the network's image, and flipped.
struct Axis {
  int source, start, window, resized, offset, network, mirrored;

  DEVICE static bool within(int first, int len, int all) {
    return first >= 0 && len > 0 && (int64_t)first + len <= all;
  }
  DEVICE bool is_sound() const {
    return within(start, window, source) && within(offset, network, resized);
  }
  DEVICE int resized_at(int at) const { return offset + (mirrored ? network - 1 - at : at); }
  DEVICE int mirrored_offset() const { return resized - offset - network; }
  // Resized length divided by the window's, in f32 where boxes are inclusive.
  DEVICE double ratio(int plus_one) const {
    return window == 0 ? 0.0 : as_f32((double)resized / (double)window, plus_one);
  }

  // Source pixel of a pixel of the network's image: the window is flipped, then resized with
  // nearest-neighbour interpolation.
  DEVICE int nearest(int at) const {
    const float scale = (float)window / (float)resized;
    const int moved = at + (mirrored ? mirrored_offset() : offset);
    const int pixel = min((int)((float)moved * scale), window - 1);
    return start + (mirrored ? window - 1 - pixel : pixel);
  }

  // Source pixel under a point of the network's image; -1 outside the image.
  DEVICE int under(float at) const {
    if (!(at >= 0.0f && at < (float)network)) return -1;
    const float moved = at + (float)(mirrored ? mirrored_offset() : offset);
    const int pixel = min((int)(moved * (float)window / (float)resized), window - 1);
    return start + (mirrored ? window - 1 - pixel : pixel);
  }

  // Maps a coordinate from the source image to the network's input. In f64, but f32 where boxes are
  // inclusive.
  DEVICE double place(float v, int plus_one) const {
    const double within = as_f32((double)v - (double)start, plus_one);
    const double scaled = as_f32(within * ratio(plus_one), plus_one);
    const double at = as_f32(scaled - (double)offset, plus_one);
    if (!mirrored) return at;
    return as_f32(as_f32((double)network - at, plus_one) - (double)plus_one, plus_one);
  }
  // The ends of a box.
  DEVICE float2 place_ends(float low, float high, int plus_one) const {
    const float2 ends = make_float2((float)place(low, plus_one), (float)place(high, plus_one));
    return mirrored ? make_float2(ends.y, ends.x) : ends;
  }
};

// The mapping of one image: rows and columns of the source, and whether these are the network's
// columns and rows.
struct View {
  Axis y, x;
  int transposed;
};
static_assert(sizeof(View) == 15 * sizeof(int), "as view.rs lays it out");
