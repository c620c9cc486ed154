// How an image gets from its source to the network's input: function by function view.rs, in the
// same order of operations.
#pragma once
#include "platform.cuh"

// An axis: a window of the source is resized, the network's image cut from that, and mirrored.
struct Axis {
  int source, start, window, resized, offset, network, mirrored;

  DEVICE static bool within(int first, int len, int all) {
    return first >= 0 && len > 0 && (int64_t)first + len <= all;
  }
  DEVICE bool is_sound() const {
    return within(start, window, source) && within(offset, network, resized);
  }
  DEVICE int resized_at(int at) const { return offset + (mirrored ? network - 1 - at : at); }
  DEVICE int offset_of_mirror() const { return resized - offset - network; }
  DEVICE float ratio() const { return window == 0 ? 0.0f : (float)resized / (float)window; }
  DEVICE float place(float v) const { return (v - (float)start) * ratio() - (float)offset; }

  // Source pixel of a pixel of the network's image: the window mirrored, then resized nearest.
  DEVICE int nearest(int at) const {
    const float scale = (float)window / (float)resized;
    const int moved = at + (mirrored ? offset_of_mirror() : offset);
    const int pixel = min((int)((float)moved * scale), window - 1);
    return start + (mirrored ? window - 1 - pixel : pixel);
  }

  // Source pixel under a point of the network's image; -1 outside the image.
  DEVICE int under(float at) const {
    if (!(at >= 0.0f && at < (float)network)) return -1;
    const float moved = at + (float)(mirrored ? offset_of_mirror() : offset);
    const int pixel = min((int)(moved * (float)window / (float)resized), window - 1);
    return start + (mirrored ? window - 1 - pixel : pixel);
  }

  // The ends of a box. Inclusive ones are mirrored last, others in the window.
  DEVICE float2 place_ends(float low, float high, int plus_one) const {
    if (!mirrored) return make_float2(place(low), place(high));
    if (plus_one) {
      const float edge = (float)network - 1.0f;
      return make_float2(edge - place(high), edge - place(low));
    }
    const float far = (float)window, first = (float)start, cut = (float)offset_of_mirror();
    return make_float2((far - (high - first)) * ratio() - cut,
                       (far - (low - first)) * ratio() - cut);
  }
};

// The way of one image: rows and columns of the source, and whether these are the network's columns
// and rows.
struct View {
  Axis y, x;
  int transposed;
};
static_assert(sizeof(View) == 15 * sizeof(int), "as view.rs lays it out");
