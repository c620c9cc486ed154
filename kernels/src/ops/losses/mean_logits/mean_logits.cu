// Class logits whose softmax is the mean of several stages' softmax; the scores of detectron2's
// CascadeROIHeads.
//
//   stages  [M, classes]  real        in   logits of each of two or three stages
//   mean    [M, classes]  real        out  logarithm of the mean probability
//
// Launch: a warp per row, blocks of 256.
// Cost: the logits are read three times, from L1 after the first; latency-bound.
// Numerics: fp32; a lane sums its classes, then the warp; rounded once.
// Edge cases: a NaN makes its row NaN.
#include "real.cuh"
#include "reduce.cuh"

REALS(fp16, fp32)

constexpr int MAX_STAGES = 3;

struct Stages {
  const real* logits[MAX_STAGES];
};

KERNEL(256)
mean_logits_f16(const Stages stages, real* RESTRICT mean, int num_stages, int rows, int classes) {
  const int lane = threadIdx.x % 32;
  const int row = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
  if (row >= rows) return;
  const uint64_t first = (uint64_t)row * classes;
  float greatest[MAX_STAGES], sum[MAX_STAGES];
#pragma unroll
  for (int s = 0; s < MAX_STAGES; s++) {
    if (s >= num_stages) break;
    const real* own = stages.logits[s] + first;
    float most = -INFINITY, all = 0.0f;
    for (int c = lane; c < classes; c += 32) most = fmaxf(most, to_float(own[c]));
    greatest[s] = warp_max(most);
    for (int c = lane; c < classes; c += 32) all += expf(to_float(own[c]) - greatest[s]);
    sum[s] = warp_sum(all);
  }
  for (int c = lane; c < classes; c += 32) {
    float all = 0.0f;
#pragma unroll
    for (int s = 0; s < MAX_STAGES; s++) {
      if (s >= num_stages) break;
      all += expf(to_float(stages.logits[s][first + c]) - greatest[s]) / sum[s];
    }
    mean[first + c] = to_real(logf(all / (float)num_stages));
  }
}
