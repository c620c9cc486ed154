// Which images of a batch are mirrored: those whose random word lies below probability * 2^32.
// Matches decide_flips on the CPU bit for bit.
//
// Tensors: image_keys [N, 4] i32 (in), flips [N] i32 (out, overwritten: 1 = mirrored). Launch: a
// thread an image. Cost: ten rounds of Philox an image, latency. Edges: probability 0 flips none,
// 1 flips all: a word in f64 is below 2^32.
#include "philox.cuh"

KERNEL(256)
decide_flips(const int* RESTRICT image_keys, int* RESTRICT flips, uint64_t seed, double bound,
             int images) {
  const int n = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (n >= images) return;
  const unsigned word = philox_keyed(seed, image_keys + 4 * (int64_t)n, PURPOSE_FLIP, 0);
  flips[n] = (double)word < bound;
}
EXPORT(decide_flips)
