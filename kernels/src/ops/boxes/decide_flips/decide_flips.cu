// Which images of a batch are mirrored: those whose random word lies below probability * 2^32.
//
//   image_keys  [N, 4]  int  in   image id (low, high word), store index, epoch
//   flips       [N]     int  out  1 = mirrored
//
// Launch: a thread per image, blocks of 256.
// Cost: ten rounds of Philox per image; latency-bound.
// Numerics: the CPU's bits.
// Edges: probability 0 flips none, 1 flips all: a word in double is below 2^32.
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
