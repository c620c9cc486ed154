// The factors of NovoGrad; arXiv 1905.11286, Algorithm 1, and apex's FusedNovoGrad.
//
//   control  [1]     Control  in     learning rate, gradient scale, apply or skip
//   norms    [n]     float    in     gradient norms before grad_factor
//   average  [n]     float    state  root of the second moment
//   steps    [1]     int      state  updates applied
//   factors  [n, 5]  float    out    factors per parameter
//
// Launch: one block, a thread per parameter.
// Cost: 32 bytes per parameter.
// Numerics: factors in double, rounded once.
// Edge cases: a gradient of zeros does not cause a division by 0.
#include "update.cuh"

// 1 / x, or 0 if x is 0.
DEVICE double inverse(double x) { return x > 0.0 ? 1.0 / x : 0.0; }

struct NovogradParameters : Parameters {
  float beta1, beta2, eps;
  int is_apex, bias_correction, reg_inside, averaging, init_zero;
  int is_last;  // last launch of the step: increments the count
  // The factors of update t; sets `average` to the new root of the second moment.
  DEVICE Factors factors(const Known& known, float& average, unsigned t) const {
    const double beta1 = this->beta1, beta2 = this->beta2, eps = this->eps;
    const bool first = t <= 1;
    const double start = init_zero ? 0.0 : known.norm;
    const double before = first ? start : (double)average;
    double root = known.norm;
    if (!first || is_apex)
      root = sqrt(beta2 * (before * before) + (1.0 - beta2) * (known.norm * known.norm));
    average = (float)root;
    if (!is_apex) {
      const double inverted = inverse(first ? root : root + eps);
      return Factors{this->beta1, (float)(inverted * known.grad_factor), (float)known.weight_decay,
                     (float)known.rate, 0.0f};
    }
    const double c1 = bias_correction ? 1.0 - power(beta1, t) : 1.0;
    const double c2 = bias_correction ? sqrt(1.0 - power(beta2, t)) : 1.0;
    const double taken = averaging ? 1.0 - beta1 : 1.0;
    const double inverted = inverse(root / c2 + eps);
    if (reg_inside)
      return Factors{this->beta1, (float)(taken * inverted * known.grad_factor),
                     (float)(taken * known.weight_decay), (float)(known.rate / c1), 0.0f};
    return Factors{this->beta1, (float)(taken * known.grad_factor), 0.0f,
                   (float)(known.rate * inverted / c1), (float)(known.rate * known.weight_decay)};
  }
};
static_assert(sizeof(NovogradParameters) == sizeof(Parameters) + 40, "the launch builds it");

KERNEL(ROOT_THREADS)
novograd_factors(const Control* RESTRICT control, const NovogradParameters in,
                 const float* RESTRICT norms, float* RESTRICT average, int* RESTRICT steps,
                 Factors* RESTRICT factors) {
  if (control->applied == 0.0f) return;
  const unsigned t = (unsigned)*steps + 1;
  for (int i = threadIdx.x; i < in.count; i += blockDim.x)
    factors[i] = in.factors(Known(*control, in, i, norms[i]), average[i], t);
  __syncthreads();
  if (threadIdx.x == 0 && in.is_last) *steps = (int)t;
}
