// Class logits whose softmax is the mean of the softmax of several stages; the scores of
// detectron2's CascadeROIHeads.
//
//   stages  [M, classes]  half/float  in   logits of each of two or three stages
//   mean    [M, classes]  half/float  out  logarithm of the mean probability
//
// Launch: a warp per row, blocks of 256.
// Cost: the logits read three times, from L1 but for the first; latency-bound.
// Numerics: fp32; a lane sums its classes, then the warp; rounded once.
// Edges: a NaN makes its row NaN.
#include "platform.cuh"
#include "reduce.cuh"

constexpr int MAX_STAGES = 3;

template <typename T>
struct Stages {
  const T* logits[MAX_STAGES];
};

template <typename T>
DEVICE void mean_logits(const Stages<T>& stages, T* RESTRICT mean, int num_stages, int rows,
                        int classes) {
  const int lane = threadIdx.x % 32;
  const int row = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
  if (row >= rows) return;
  const uint64_t first = (uint64_t)row * classes;
  float greatest[MAX_STAGES], sum[MAX_STAGES];
#pragma unroll
  for (int s = 0; s < MAX_STAGES; s++) {
    if (s >= num_stages) break;
    const T* own = stages.logits[s] + first;
    float most = -INFINITY, all = 0.0f;
    for (int c = lane; c < classes; c += 32) most = fmaxf(most, (float)own[c]);
    greatest[s] = warp_max(most);
    for (int c = lane; c < classes; c += 32) all += expf((float)own[c] - greatest[s]);
    sum[s] = warp_sum(all);
  }
  for (int c = lane; c < classes; c += 32) {
    float all = 0.0f;
#pragma unroll
    for (int s = 0; s < MAX_STAGES; s++) {
      if (s >= num_stages) break;
      all += expf((float)stages.logits[s][first + c] - greatest[s]) / sum[s];
    }
    mean[first + c] = (T)logf(all / (float)num_stages);
  }
}

KERNEL(256)
mean_logits_f16(const Stages<half> stages, half* mean, int num_stages, int rows, int classes) {
  mean_logits(stages, mean, num_stages, rows, classes);
}
EXPORT(mean_logits_f16)

KERNEL(256)
mean_logits_f32(const Stages<float> stages, float* mean, int num_stages, int rows, int classes) {
  mean_logits(stages, mean, num_stages, rows, classes);
}
EXPORT(mean_logits_f32)
