// Counter-based random numbers, Philox4x32-10 (Salmon et al., SC 2011): bit-identical to philox.rs.
//
// A number is a pure function of key and counter, so no state is kept and no order matters.
#pragma once
#include "platform.cuh"

// The purpose of a random number; keeps the streams of one image apart.
constexpr unsigned PURPOSE_FLIP = 1, PURPOSE_ANCHORS = 2, PURPOSE_ROIS = 3, PURPOSE_DEPTH = 10;

// Four random words from key and counter.
DEVICE uint4 philox4x32(unsigned key0, unsigned key1, uint4 counter) {
  constexpr unsigned M0 = 0xD2511F53u, M1 = 0xCD9E8D57u;
  for (int round = 0; round < 10; round++) {
    const unsigned high0 = __umulhi(M0, counter.x), low0 = M0 * counter.x;
    const unsigned high1 = __umulhi(M1, counter.z), low1 = M1 * counter.z;
    counter = make_uint4(high1 ^ counter.y ^ key0, low1, high0 ^ counter.w ^ key1, low0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// A random word keyed by (seed, epoch, image, purpose, index). `image_key` is a row of the loader's
// image keys: image id (low, high word), store index, epoch.
DEVICE unsigned philox_keyed(uint64_t seed, const int* image_key, unsigned purpose,
                             unsigned index) {
  const unsigned epoch = (unsigned)image_key[3];
  const unsigned key0 = (unsigned)seed ^ (epoch << 16 | epoch >> 16);
  const uint4 counter = make_uint4(index, purpose, (unsigned)image_key[0], (unsigned)image_key[1]);
  return philox4x32(key0, (unsigned)(seed >> 32), counter).x;
}
