// Question: combined.cu with taps_ca_128b.cu: all of step 6 of the review but its tiles.
// Prediction: 1.126 times as fast on A100 and 1.165 on H100 for 3x3 (90.1 -> 81.5 and 51.6 -> 45.4
// ms a step), as combined.cu for 1x1. The order of sums is another one, for 3x3.
#include "loop.cuh"

struct CombinedTapsInner : probe::Today {
  static constexpr bool PREDICATED = true, POINTERS = true, TAPS_INNER = true;
  static constexpr probe::Cache CACHE = probe::Cache::L1_LINES;
};
PROBE_CONV(probe_combined_ca, CombinedTapsInner)
