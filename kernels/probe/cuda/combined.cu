// Question: what do the changes that keep the order of sums buy together: predicated.cu
// and pointers.cu? Prediction: 1.095 times as fast on A100 and 1.115 on H100 for 3x3, 1.01 and
// 1.03 for 1x1 with residual. Same bits: it could take today's place at once.
#include "loop.cuh"

struct Combined : probe::Today {
  static constexpr bool PREDICATED = true, POINTERS = true;
};
PROBE_CONV(probe_combined, Combined)
