// Objects of a batch in the loader's layout, and rasterising one of them.
#pragma once
#include "polygon.cuh"
#include "view.cuh"

// Polygons and runs of the objects of N images.
struct Segments {
  const int* index;     // [N, objects, 3]: kind (0 polygons, 1 runs), first part, number of parts
  const int* parts;     // [N, part_capacity, 2]: offset, length of a polygon or list of runs
  const float* coords;  // [N, coord_capacity]
  const int* runs;      // [N, run_capacity]
  const View* views;    // [N]
  int images, objects, part_capacity, coord_capacity, run_capacity;
};
static_assert(sizeof(Segments) == 64, "five pointers, five ints and padding");

// The RoIs of a launch.
struct MaskRois {
  const float4* boxes;                     // [M]
  const int *image_idx, *matched, *count;  // [M], [M], [1]
};
static_assert(sizeof(MaskRois) == 32, "four pointers");

// The object of a RoI.
struct Object {
  int image, first, parts;
  bool polygons;
  const View* view;
  DEVICE Canvas source() const { return {view->y.source, view->x.source}; }
};

// Finds the object of a row of `capacity`; false if it has none.
DEVICE bool find_object(Object& object, const Segments& in, const MaskRois& rois, int row) {
  if (row >= rois.count[0]) return false;
  const int n = rois.image_idx[row], g = rois.matched[row];
  if (n < 0 || n >= in.images || g < 0 || g >= in.objects) return false;
  const int* entry = in.index + 3 * ((int64_t)n * in.objects + g);
  const View* view = in.views + n;
  object = {n, entry[1], entry[2], entry[0] == 0, view};
  const bool inside = entry[1] >= 0 && entry[2] >= 0 && entry[2] <= in.part_capacity - entry[1];
  return inside && view->y.is_sound() && view->x.is_sound();
}

// Rasterises the object's tile into `bits`: the union of its polygons or lists of runs. `marks` is
// a second tile, `scratch` 32 values. Called by all threads of the block; the tile is complete on
// return.
DEVICE void draw_object(unsigned* bits, unsigned* marks, int64_t* scratch, Tile tile, Canvas canvas,
                        const Segments& in, const Object& object, const Placement& placement) {
  __syncthreads();  // the previous tile has been read
  for (int i = threadIdx.x; i < TILE_BITS; i += blockDim.x) bits[i] = marks[i] = 0;
  __syncthreads();
  const int64_t n = object.image;
  const int capacity = object.polygons ? in.coord_capacity : in.run_capacity;
  for (int p = 0; p < object.parts; p++) {
    const int* part = in.parts + 2 * (n * in.part_capacity + object.first + p);
    const int offset = part[0], len = part[1];
    if (offset < 0 || len > capacity - offset) continue;
    const int64_t at = n * capacity + offset;
    if (object.polygons) {
      draw_polygon(marks, tile, canvas, placement, in.coords + at, len);
    } else {
      draw_runs(marks, tile, canvas, in.runs + at, len, scratch);
    }
    __syncthreads();
    fill_columns(bits, marks);
    __syncthreads();
  }
}

// A box with swapped axes.
DEVICE float4 transposed(float4 box) { return make_float4(box.y, box.x, box.w, box.z); }

// A float as a pixel index: truncated, clamped to 0..=last; NaN is 0.
DEVICE int pixel_at(float v, int last) { return (int)fminf(fmaxf(v, 0.0f), (float)last); }
