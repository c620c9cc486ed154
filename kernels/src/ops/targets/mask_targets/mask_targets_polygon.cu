// Mask targets as in maskrcnn-benchmark and detectron2: polygons moved into the RoI and filled by
// COCO's rule; for runs, the pixel under each centre.
//
//   boxes      [M, 4]           float  in   RoIs
//   image_idx  [M]              int    in   image of the RoI
//   matched    [M]              int    in   object of the RoI within the image
//   count      [1]              int    in   RoIs in use
//   targets    [M, side, side]  float  out  0 or 1
//
// Launch: a block of 256 threads per RoI.
// Cost: an edge per thread, then 784 pixels; microseconds at 1,536 RoIs (12 images); latency-bound.
// Numerics: fp64, or fp32 to place points if boxes are inclusive, as on the CPU.
// Edge cases: rows past the count or without an object are 0; a polygon or list of runs that
// exceeds its tensor is skipped.
//
// The objects are in `Segments` of segments.cuh. Equals mask_targets with CocoPolygon on the CPU.
#include "segments.cuh"

// Transform of an axis into a RoI.
DEVICE AxisPlacement place_in_roi(const Axis& axis, float low, float high, int side, int plus_one,
                                  float min_side) {
  const double length = fmax(as_f32((double)high - (double)low, plus_one), (double)min_side);
  return {axis, low, as_f32((double)side / length, plus_one), plus_one};
}

// Source pixel under the centre of target pixel i along an axis; -1 outside the image.
DEVICE int source_under(int i, float low, float high, int side, float min_side,
                        const Axis& axis) {
  return axis.under(low + ((float)i + 0.5f) * fmaxf(high - low, min_side) / (float)side);
}

// Transposes a square. Called by all threads of the block.
DEVICE void transpose(float* square, int side) {
  __syncthreads();
  // Avoids a division, whose intermediate values would increase register pressure.
  for (int row = threadIdx.x / 32; row < side; row += blockDim.x / 32) {
    for (int column = threadIdx.x % 32; column < row; column += 32) {
      const float value = square[row * side + column];
      square[row * side + column] = square[column * side + row];
      square[column * side + row] = value;
    }
  }
}

KERNEL_BLOCKS(256, 2)
mask_targets_polygon(MaskRois rois, Segments in, float* RESTRICT targets, int side, int plus_one,
                     float min_side) {
  SHARED(unsigned, bits, TILE_BITS);
  SHARED(unsigned, marks, TILE_BITS);
  SHARED(int64_t, scratch, 32);
  const int row = blockIdx.x, pixels = side * side;
  float* target = targets + (int64_t)row * pixels;
  for (int i = threadIdx.x; i < pixels; i += blockDim.x) target[i] = 0.0f;
  Object object;
  if (!find_object(object, in, rois, row)) return;  // uniform over the block
  const View& view = *object.view;
  // In the source's orientation.
  const float4 roi = view.transposed ? transposed(rois.boxes[row]) : rois.boxes[row];
  const Placement placement = {1, place_in_roi(view.x, roi.x, roi.z, side, plus_one, min_side),
                               place_in_roi(view.y, roi.y, roi.w, side, plus_one, min_side)};
  const Canvas canvas = object.polygons ? Canvas{side, side} : object.source();
  for (Tile tile = {0, 0}; tile.y < canvas.height; tile.y += TILE_ROWS) {
    for (tile.x = 0; tile.x < canvas.width; tile.x += TILE_COLUMNS) {
      bool wanted = object.polygons;
      for (int i = threadIdx.x; i < side && !wanted; i += blockDim.x) {
        const int x = source_under(i, roi.x, roi.z, side, min_side, view.x);
        wanted = x >= tile.x && x < tile.x + TILE_COLUMNS;
      }
      if (!__syncthreads_or(wanted)) continue;
      draw_object(bits, marks, scratch, tile, canvas, in, object, placement);
      for (int i = threadIdx.x; i < pixels; i += blockDim.x) {
        int x = i % side, y = i / side;
        if (!object.polygons) {
          x = source_under(x, roi.x, roi.z, side, min_side, view.x);
          y = source_under(y, roi.y, roi.w, side, min_side, view.y);
          if (x < 0 || y < 0) continue;
        }
        if (tile_holds(tile, x, y)) target[i] = tile_bit(bits, tile, x, y) ? 1.0f : 0.0f;
      }
    }
  }
  if (object.view->transposed) transpose(target, side);
}
