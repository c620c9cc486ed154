// Losses times a weight, then a request to stop, in one vector for the all-reduce.
//
//   loss    [1]      float  in   one of up to 64 losses
//   weight  [1]      float  in   multiplies every loss
//   stop    [1]      float  in   copied
//   y       [len+1]  float  out  weight * loss of each of len losses, then stop
//
// Launch: one block of 64 threads, a thread per loss.
// Cost: 8 bytes per loss; the launch itself.
// Numerics: fp32, rounded once.
// Edge cases: a non-finite loss with weight 0 gives NaN.
#include "platform.cuh"

constexpr int MAX_LOSSES = 64;

// Same layout as the struct that the launch builds.
struct Losses {
  const float* loss[MAX_LOSSES];
};
static_assert(sizeof(Losses) == 8 * MAX_LOSSES, "the launch builds it");

KERNEL(MAX_LOSSES)
weighted_losses(const Losses in, int len, const float* RESTRICT weight, const float* RESTRICT stop,
                float* RESTRICT y) {
  const int i = threadIdx.x;
  if (i < len) y[i] = *weight * *in.loss[i];
  if (i == 0) y[len] = *stop;
}
