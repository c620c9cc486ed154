// Mask targets by maskrcnn-benchmark's rule: polygons moved into the RoI and filled by COCO's rule;
// of runs, the pixel under each centre.
//
//   boxes      [M, 4]           float  in   RoIs
//   image_idx  [M]              int    in   image of the RoI
//   matched    [M]              int    in   object of the RoI within the image
//   count      [1]              int    in   RoIs in use
//   targets    [M, side, side]  float  out  0 or 1
//
// Launch: a block of 256 threads per RoI.
// Cost: an edge per thread, then 784 pixels; microseconds at 1,536 RoIs (12 images); latency-bound.
// Numerics: fp32 to place points, then fp64, as on the CPU.
// Edges: rows past the count and of no object are 0; a part that does not fit its tensor is
// skipped.
//
// The objects are in `Segments` of segments.cuh. Equals mask_targets with CocoPolygon on the CPU.
#include "segments.cuh"

// Polygons of an object into a RoI.
DEVICE Placement place_in_roi(const Object& object, float4 roi, int side, int plus_one) {
  Placement p;
  p.moved = 1;
  p.flip = object.flip;
  p.plus_one = plus_one;
  p.mirror = (float)object.network.width;
  p.resize = make_float2((float)object.network.width / (float)object.source.width,
                         (float)object.network.height / (float)object.source.height);
  p.corner = make_float2(roi.x, roi.y);
  p.scale = make_float2((float)side / fmaxf(roi.z - roi.x, 1.0f),
                        (float)side / fmaxf(roi.w - roi.y, 1.0f));
  return p;
}

// Source pixel under the centre of target pixel i along an axis; -1 outside the image.
DEVICE int source_under(int i, float low, float high, int side, int source, int network) {
  const float size = fmaxf(high - low, 1.0f);
  const float at = low + ((float)i + 0.5f) * size / (float)side;
  if (!(at >= 0.0f && at < (float)network)) return -1;
  return pixel_at(at * (float)source / (float)network, source - 1);
}

KERNEL(256)
mask_targets_polygon(MaskRois rois, Segments in, float* RESTRICT targets, int side, int plus_one) {
  SHARED(unsigned, bits, TILE_BITS);
  SHARED(unsigned, marks, TILE_BITS);
  SHARED(int64_t, scratch, 32);
  const int row = blockIdx.x, pixels = side * side;
  float* target = targets + (int64_t)row * pixels;
  for (int i = threadIdx.x; i < pixels; i += blockDim.x) target[i] = 0.0f;
  Object object;
  if (!find_object(object, in, rois, row)) return;  // the whole block
  const float4 roi = rois.boxes[row];
  const Placement placement = place_in_roi(object, roi, side, plus_one);
  const Canvas canvas = object.polygons ? Canvas{side, side} : object.source;
  for (Tile tile = {0, 0}; tile.y < canvas.height; tile.y += TILE_ROWS) {
    for (tile.x = 0; tile.x < canvas.width; tile.x += TILE_COLUMNS) {
      bool wanted = object.polygons;
      for (int i = threadIdx.x; i < side && !wanted; i += blockDim.x) {
        int x = source_under(i, roi.x, roi.z, side, canvas.width, object.network.width);
        if (x >= 0 && object.flip) x = canvas.width - 1 - x;
        wanted = x >= tile.x && x < tile.x + TILE_COLUMNS;
      }
      if (!__syncthreads_or(wanted)) continue;
      draw_object(bits, marks, scratch, tile, canvas, in, object, placement);
      for (int i = threadIdx.x; i < pixels; i += blockDim.x) {
        int x = i % side, y = i / side;
        if (!object.polygons) {
          x = source_under(x, roi.x, roi.z, side, canvas.width, object.network.width);
          y = source_under(y, roi.y, roi.w, side, canvas.height, object.network.height);
          if (x < 0 || y < 0) continue;
          if (object.flip) x = canvas.width - 1 - x;
        }
        if (tile_holds(tile, x, y)) target[i] = tile_bit(bits, tile, x, y) ? 1.0f : 0.0f;
      }
    }
  }
}
EXPORT(mask_targets_polygon)
