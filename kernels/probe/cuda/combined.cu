// Question: what do the changes that keep the order of sums buy together: predicated.cu,
// pointers.cu, epilogue.cu? Prediction: 1.10 times as fast on A100 and 1.12 on H100 for 3x3, 1.42
// and 1.65 for 1x1 with residual. Same bits: it could take today's place at once.
#include "loop.cuh"

struct Combined : probe::Today {
  static constexpr bool PREDICATED = true, POINTERS = true, PREFETCHED = true;
};
PROBE_CONV(probe_combined, Combined)
