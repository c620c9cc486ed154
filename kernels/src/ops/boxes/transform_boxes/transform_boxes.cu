// Transforms ground-truth boxes from source to network pixels: cropped, scaled as torchvision's
// resize_boxes, and flipped before scaling, or after it if boxes are inclusive.
//
//   boxes     [N, capacity, 4]  float  in   boxes in source pixels
//   counts    [N]               int    in   boxes of each image
//   views     [N]               View   in   the transform of each image
//   out       [N, capacity, 4]  float  out  zeros past the count
//
// Launch: a thread per box, blocks of 256.
// Cost: 32 bytes per box; latency-bound.
// Numerics: the CPU's operations in its order.
// Edge cases: a window of 0 gives ratio 0; a count outside [0, capacity] is clamped to it.
#include "boxes.cuh"
#include "view.cuh"

KERNEL(256)
transform_boxes_f32(const Box* RESTRICT boxes, const int* RESTRICT counts,
                    const View* RESTRICT views, Box* RESTRICT out, int num_images, int capacity,
                    int plus_one) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (uint64_t)num_images * capacity) return;
  const int n = (int)(i / capacity), g = (int)(i % capacity);
  if (g >= counts[n]) {
    out[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return;
  }
  const View view = views[n];
  const Box b = boxes[i];
  const float2 x = view.x.place_ends(b.x, b.z, plus_one);
  const float2 y = view.y.place_ends(b.y, b.w, plus_one);
  out[i] = view.transposed ? make_float4(y.x, x.x, y.y, x.y) : make_float4(x.x, y.x, x.y, y.y);
}
