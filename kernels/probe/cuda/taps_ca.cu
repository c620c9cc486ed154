// Question: can L1 serve the taps of a window? Today all channels of a tap come before the next
// tap, and copies pass L1 by, so every tap is read from L2. Here the nine taps of 32 channels
// follow one another through L1: a third fewer bytes from L2, if they stay. Prediction: 1.02 times
// as fast on A100 and 1.03 on H100 for 3x3, nothing for 1x1. The order of sums is another one, for
// 3x3.
#include "loop.cuh"

struct TapsInner : probe::Today {
  static constexpr bool TAPS_INNER = true;
  static constexpr probe::Cache CACHE = probe::Cache::L1;
};
PROBE_CONV(probe_taps_ca, TapsInner)
