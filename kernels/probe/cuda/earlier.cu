// Question: what did the loop of training gain when it was written anew? This is the one before:
// addresses made anew for every k-block in chains of 64-bit multiplications, a fill behind a branch
// which keeps ptxas from mixing it into the products, and fragments that load after the barrier.
// Prediction: 0.91 of the baseline's speed on A100 and 0.89 on H100 for 3x3, 0.98 for 1x1. Same
// bits.
#include "loop.cuh"

struct Earlier : probe::Today {
  static constexpr bool PREDICATED = false, POINTERS = false, ACROSS = false;
};
PROBE_CONV(probe_earlier, Earlier)
