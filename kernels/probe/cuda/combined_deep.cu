// Question: combined.cu with the stages of depth64.cu: half as many barriers, and half as much to
// do between k-blocks. Prediction: 1.15 times as fast on H100 for 3x3, 0.9 on A100, which then
// has one block a multiprocessor. Same bits.
#include "loop.cuh"

struct CombinedDeep : probe::Today {
  static constexpr bool PREDICATED = true, POINTERS = true;
  static constexpr int DEPTH = 64, STAGES = 3;
};
PROBE_CONV(probe_combined_deep, CombinedDeep)
