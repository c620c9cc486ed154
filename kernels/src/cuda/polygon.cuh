// Rasterizes objects by COCO's rules, a tile at a time: polygons as in coco/polygon.rs, and RLE
// runs. One block draws a tile into shared memory, one bit per pixel.
//
// A pixel is inside if an odd number of boundary crossings of its column are at or above it. So
// each crossing toggles one bit (atomicXor: the order does not matter), and a prefix XOR down the
// column fills. A crossing above the tile toggles its first row; one to the left or right of it is
// skipped. Positions are doubles in COCO's order of operations, written with intrinsics so that
// nothing is contracted to FMAs.
#pragma once
#include "sampling.cuh"
#include "view.cuh"

constexpr int TILE_COLUMNS = 32, TILE_WORDS = 32, TILE_ROWS = 32 * TILE_WORDS;
constexpr int TILE_STRIDE = TILE_COLUMNS + 1;  // a warp reads a row, or a column, without conflicts
constexpr int TILE_BITS = TILE_WORDS * TILE_STRIDE;  // unsigneds of a tile

// Pixels that an object is drawn on.
struct Canvas {
  int height, width;
};

// First column and row of a tile.
struct Tile {
  int x, y;
};

DEVICE bool tile_holds(Tile tile, int column, int row) {
  return column >= tile.x && column < tile.x + TILE_COLUMNS && row >= tile.y &&
         row < tile.y + TILE_ROWS;
}
DEVICE bool tile_bit(const unsigned* bits, Tile tile, int column, int row) {
  const int y = row - tile.y;
  return bits[y / 32 * TILE_STRIDE + column - tile.x] >> y % 32 & 1;
}

// Toggles inside and outside for the pixels of a tile's column from `row` on.
DEVICE void toggle(unsigned* bits, Tile tile, int column, int row) {
  const int y = max(row - tile.y, 0);
  if (y < TILE_ROWS) atomicXor(&bits[y / 32 * TILE_STRIDE + column - tile.x], 1u << y % 32);
}

// Five samples per pixel, rounded as in COCO: half up, then toward zero; clamped to 32 bits.
DEVICE int sample_coordinate(double v) {
  const double at = __dadd_rn(__dmul_rn(5.0, v), 0.5);
  if (!(at > -2147483648.0)) return at == at ? (int)0x80000000 : 0;
  return at < 2147483647.0 ? (int)at : 0x7fffffff;
}

// First row at or below a sample, within the canvas.
DEVICE int sample_row(int64_t sample, int height) {
  const double y = __dadd_rn(__dadd_rn((double)sample, 0.5) / 5.0, -0.5);
  return (int)ceil(fmin(fmax(y, 0.0), (double)height));
}

// An edge, directed so that the coordinate of its longer axis increases.
struct Edge {
  int64_t from, minor_from;  // start on the longer and the shorter axis
  int64_t steps;
  double slope;  // change of the shorter axis per step
  bool steep;    // the longer axis is y

  DEVICE Edge(int ax, int ay, int bx, int by) {
    const int64_t dx = (int64_t)bx - ax, dy = (int64_t)by - ay;
    const int64_t spans[2] = {dx < 0 ? -dx : dx, dy < 0 ? -dy : dy};
    steep = spans[0] < spans[1];
    steps = steep ? spans[1] : spans[0];
    const bool turned = steep ? dy < 0 : dx < 0;
    from = steep ? (turned ? by : ay) : (turned ? bx : ax);
    minor_from = steep ? (turned ? bx : ax) : (turned ? by : ay);
    const int64_t change = steep ? dx : dy;
    slope = (double)(turned ? -change : change) / (double)steps;
  }
  // Position on the shorter axis at a step.
  DEVICE int64_t minor(int64_t step) const {
    const double moved = __dmul_rn(slope, (double)step);
    return (int64_t)__dadd_rn(__dadd_rn((double)minor_from, moved), 0.5);
  }
  // First step at which a steep edge has crossed `before` + 0.5.
  DEVICE int64_t step_past(int64_t before) const {
    int64_t near = 0, far = steps;
    while (far - near > 1) {
      const int64_t middle = near + (far - near) / 2, at = minor(middle);
      const bool past = slope > 0.0 ? at > before : at <= before;
      far = past ? middle : far;
      near = past ? near : middle;
    }
    return far;
  }
};

// Toggles the tile's columns whose centre the edge passes: from sample 5x+2 to 5x+3 or back.
DEVICE void draw_edge(unsigned* bits, Tile tile, Canvas canvas, const Edge& edge) {
  if (edge.steps == 0) return;
  int64_t low = edge.from, high = edge.from + edge.steps;
  if (edge.steep) {
    const int64_t a = edge.minor(0), b = edge.minor(edge.steps);
    low = a < b ? a : b;
    high = a < b ? b : a;
  }
  const int64_t end = min(canvas.width, tile.x + TILE_COLUMNS);
  int64_t column = low + 2 > 0 ? (low + 2) / 5 : 0;
  column = column > tile.x ? column : tile.x;
  for (; column < end && 5 * column + 3 <= high; column++) {
    const int64_t before = 5 * column + 2;
    int64_t y;
    if (edge.steep) {
      y = edge.from + edge.step_past(before) - 1;
    } else {
      const int64_t a = edge.minor(before - edge.from), b = edge.minor(before - edge.from + 1);
      y = a < b ? a : b;
    }
    toggle(bits, tile, (int)column, sample_row(y, canvas.height));
  }
}

// Maps coordinates of an axis into a RoI: placed in the network's image, shifted and scaled, in f32
// where boxes are inclusive.
struct AxisPlacement {
  Axis axis;
  double corner, scale;
  int plus_one;
  DEVICE double operator()(float v) const {
    const double shifted = as_f32(axis.place(v, plus_one) - corner, plus_one);
    return as_f32(shifted * scale, plus_one);
  }
};

// Maps points of a polygon to the canvas: unchanged (`moved` = 0), or into a RoI.
struct Placement {
  int moved;
  AxisPlacement x, y;
};

DEVICE int place(const Placement& p, const AxisPlacement& axis, float v) {
  return sample_coordinate(p.moved ? axis(v) : (double)v);
}

// Toggles the boundary of a polygon of `len` values x, y, ..; one thread per edge.
DEVICE void draw_polygon(unsigned* bits, Tile tile, Canvas canvas, const Placement& placement,
                         const float* values, int len) {
  const int points = len / 2;
  for (int i = threadIdx.x; i < points; i += blockDim.x) {
    const int next = i + 1 < points ? i + 1 : 0;
    const auto at = [&](int point) {
      return make_int2(place(placement, placement.x, values[2 * point]),
                       place(placement, placement.y, values[2 * point + 1]));
    };
    const int2 from = at(i), to = at(next);
    const Edge edge(from.x, from.y, to.x, to.y);
    draw_edge(bits, tile, canvas, edge);
  }
}

// Toggles the ends of `len` column-major runs, zeros first: one thread per run, which ends at the
// prefix sum of the lengths. `scratch` holds 32 values.
DEVICE void draw_runs(unsigned* bits, Tile tile, Canvas canvas, const int* runs, int len,
                      int64_t* scratch) {
  const int64_t size = (int64_t)canvas.height * canvas.width;
  int64_t base = 0;
  for (int chunk = 0; chunk < len; chunk += blockDim.x) {
    const int i = chunk + threadIdx.x;
    const int64_t own = i < len ? max(runs[i], 0) : 0;
    int64_t total;
    const int64_t start = base + block_exclusive_sum(own, scratch, total);
    base += total;
    const int64_t end = start + own < size ? start + own : size;
    if (i % 2 == 0 || end <= start) continue;
    int column = max((int)(start / canvas.height), tile.x);
    const int last = min((int)((end - 1) / canvas.height), tile.x + TILE_COLUMNS - 1);
    for (; column <= last; column++) {
      const int64_t top = start - (int64_t)column * canvas.height;
      const int64_t bottom = end - (int64_t)column * canvas.height;
      toggle(bits, tile, column, top > 0 ? (int)top : 0);
      if (bottom < canvas.height) toggle(bits, tile, column, (int)bottom);
    }
  }
}

// Fills the columns of `marks` and adds them to `bits`; resets marks to zero. One warp per column,
// one lane per word.
DEVICE void fill_columns(unsigned* bits, unsigned* marks) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int column = threadIdx.x / 32; column < TILE_COLUMNS; column += warps) {
    const int at = lane * TILE_STRIDE + column;
    unsigned word = marks[at];
    for (int shift = 1; shift < 32; shift *= 2) word ^= word << shift;
    const unsigned odd = __ballot_sync(ALL_LANES, word >> 31);
    if (__popc(odd & ((1u << lane) - 1)) % 2 == 1) word = ~word;
    bits[at] |= word;
    marks[at] = 0;
  }
}
