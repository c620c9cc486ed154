// Moves ground-truth boxes from source pixels to network pixels as torchvision's resize_boxes, and
// mirrors them before that, or after it where they are inclusive.
//
//   boxes     [N, capacity, 4]  float  in   boxes in source pixels
//   counts    [N]               int    in   boxes of each image
//   sources   [N, 2]            int    in   height and width in the source
//   networks  [N, 2]            int    in   height and width in the network's input
//   flips     [N]               int    in   1 = mirrored
//   out       [N, capacity, 4]  float  out  zeros from the count on
//
// Launch: a thread per box, blocks of 256.
// Cost: 32 bytes per box; latency-bound.
// Numerics: the CPU's operations in its order.
// Edges: a source size of 0 is ratio 0; a count outside [0, capacity] is clamped to it.
#include "boxes.cuh"

DEVICE float size_ratio(int now, int old) { return old == 0 ? 0.0f : (float)now / (float)old; }

KERNEL(256)
transform_boxes_f32(const Box* RESTRICT boxes, const int* RESTRICT counts,
                    const ImageSize* RESTRICT sources, const ImageSize* RESTRICT networks,
                    const int* RESTRICT flips, Box* RESTRICT out, int num_images, int capacity,
                    int plus_one) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (uint64_t)num_images * capacity) return;
  const int n = (int)(i / capacity), g = (int)(i % capacity);
  if (g >= counts[n]) {
    out[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return;
  }
  const ImageSize source = sources[n], network = networks[n];
  Box b = boxes[i];
  if (flips[n] != 0 && !plus_one) b = box_flip(b, (float)source.width, 0);
  b = box_scale(b, size_ratio(network.width, source.width),
                size_ratio(network.height, source.height));
  if (flips[n] != 0 && plus_one) b = box_flip(b, (float)network.width, 1);
  out[i] = b;
}
EXPORT(transform_boxes_f32)
