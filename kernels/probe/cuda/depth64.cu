// Question: are three stages of 64 values of k better than four of 32? A row of a stage is a whole
// line of 128 bytes, and there are half as many barriers; but 96 KiB a block leave an A100 one
// block a multiprocessor. Fragments across the barrier would spill, so they load after it.
// Prediction: 1.03 times as fast on H100 for 3x3, 0.85 on A100. Same bits.
#include "loop.cuh"

struct Depth64 : probe::Today {
  static constexpr int DEPTH = 64, STAGES = 3;
  static constexpr bool ACROSS = false;
};
PROBE_CONV(probe_depth64, Depth64)
