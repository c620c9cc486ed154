// The factors of LARS; arXiv 1708.03888, Algorithm 1.
//
//   control  [1]       Control  in   learning rate, gradient scale, apply or skip
//   norms    [n]       float    in   gradient norms before grad_factor
//   sums     [blocks]  double   in   sums of squares of the weights
//   factors  [n, 5]    float    out  factors per parameter
//
// Launch: one block, a warp per parameter.
// Cost: 8 bytes per block of the weights.
// Numerics: factors in double, rounded once.
// Edge cases: a gradient or weight of zeros does not cause a division by 0.
#include "update.cuh"

struct LarsParameters : Parameters {
  float momentum, trust;
  DEVICE Factors factors(const Known& known, bool adapts, double weight_norm) const {
    double local = 1.0;
    if (adapts && known.norm > 0.0 && weight_norm > 0.0)
      local = (double)trust * weight_norm / (known.norm + known.weight_decay * weight_norm);
    const double rate = known.rate * local;
    return Factors{momentum, (float)(rate * known.grad_factor), (float)(rate * known.weight_decay),
                   1.0f, 0.0f};
  }
};
static_assert(sizeof(LarsParameters) == sizeof(Parameters) + 8, "the launch builds it");

KERNEL(ROOT_THREADS)
lars_factors(const Control* RESTRICT control, const LarsParameters in, const float* RESTRICT norms,
             const double* RESTRICT sums, Factors* RESTRICT factors) {
  if (control->applied == 0.0f) return;
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x / 32; i < in.count; i += blockDim.x / 32) {
    double sum = 0.0;
    const int end = in.end_block(i);
    for (int block = in.first_block[i] + lane; block < end; block += 32) sum += sums[block];
    sum = warp_sum(sum);
    const bool adapts = (in.flags[i] & ADAPTS) != 0;
    const Known known(*control, in, i, norms[i]);
    if (lane == 0) factors[i] = in.factors(known, adapts, sqrt(sum));
  }
}
