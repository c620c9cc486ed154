// Question: as taps_ca.cu, and does it help that a miss brings 128 bytes into L2, where a stage
// asks for 64 of them now and for the rest nine k-blocks later? Prediction: 1.03 times as fast as
// today on A100 and 1.04 on H100 for 3x3.
#include "loop.cuh"

struct TapsInnerLines : probe::Today {
  static constexpr bool TAPS_INNER = true;
  static constexpr probe::Cache CACHE = probe::Cache::L1_LINES;
};
PROBE_CONV(probe_taps_ca_128b, TapsInnerLines)
