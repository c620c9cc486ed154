// AdamW; torch.optim.AdamW.
//
//   control  [1]          Control     in       rate, gradient scale, apply or skip
//   steps    [1]          int         state    adamw_factors: updates applied
//   factors  [n, 5]       float       scratch  factors per parameter
//   grad     [len]        float       in       one of up to 64 gradients
//   w        [len]        half/float  state    weight; with a master its copy, rounded
//   m        [len]        float       state    momentum
//   v        [len]        float       state    second moment
//   p        [len]        float       state    master weight, or null: then w is updated
//   sums     [blocks, 3]  double      scratch  adamw_sums: per block, see update.cuh
//
// Launch: factors in one block, a thread per parameter; then as sgd.cu.
// Cost: 30 bytes per element with a master and w in half; memory-bound.
// Numerics: factors in double, rounded once; then fp32, elementwise, bit-identical to the CPU: the
// same operations in the same order.
// Edge cases: a skipped step changes nothing, and its gradients may be non-finite.
#include "update.cuh"

struct AdamwRule {
  float take1, beta2, take2, eps;
};

// The factors of one parameter in one update.
struct AdamwFactors {
  float grad_factor, keep, step, root, unused;
};
static_assert(sizeof(AdamwFactors) == FACTORS * sizeof(float), "a row of factors");

struct AdamwRow {
  static constexpr bool HAS_SECOND_MOMENT = true;
  AdamwRule rule;
  AdamwFactors factors;
  DEVICE float update(float w, float& m, float& v, float grad) const {
    const float g = factors.grad_factor * grad;
    m += rule.take1 * (g - m);
    v = rule.beta2 * v + rule.take2 * (g * g);
    return factors.keep * w - factors.step * (m / (sqrtf(v) / factors.root + rule.eps));
  }
};

struct AdamwTimeParameters : Parameters {
  double beta1, beta2;
  int is_last;  // last launch of the step: increments the count
  int unused;
};
static_assert(sizeof(AdamwTimeParameters) == sizeof(Parameters) + 24, "the launch builds it");
struct AdamwParameters : Parameters {
  float* v[CAPACITY];
  AdamwRule rule;
};
static_assert(sizeof(AdamwParameters) == sizeof(Parameters) + 8 * CAPACITY + 16,
              "the launch builds it");
static_assert(sizeof(AdamwParameters) <= 4096 - 96, "a launch carries it, with other arguments");

KERNEL(ROOT_THREADS)
adamw_factors(const Control* RESTRICT control, const AdamwTimeParameters in, int* RESTRICT steps,
              AdamwFactors* RESTRICT factors) {
  if (control->applied == 0.0f) return;
  const unsigned t = (unsigned)*steps + 1;
  const double c1 = 1.0 - power(in.beta1, t);
  const float root = (float)sqrt(1.0 - power(in.beta2, t));
  for (int i = threadIdx.x; i < in.count; i += blockDim.x) {
    const Known known(*control, in, i, 0.0f);
    factors[i] = AdamwFactors{control->grad_factor, (float)(1.0 - known.rate * known.weight_decay),
                              (float)(known.rate / c1), root, 0.0f};
  }
  __syncthreads();
  if (threadIdx.x == 0 && in.is_last) *steps = (int)t;
}

KERNEL(THREADS)
adamw(const Control* RESTRICT control, const AdamwParameters in,
      const AdamwFactors* RESTRICT factors) {
  if (control->applied == 0.0f) return;
  const int i = tensor_of(in.first_block, blockIdx.x);
  update_parameter<false>(AdamwRow{in.rule, factors[i]}, in, i, true, in.v[i]);
}

KERNEL(THREADS)
adamw_sums(const Control* RESTRICT control, const AdamwParameters in,
           const AdamwFactors* RESTRICT factors, double* RESTRICT sums) {
  SHARED(double, scratch, 32);
  const int i = tensor_of(in.first_block, blockIdx.x);
  const bool apply = control->applied != 0.0f;
  AdamwRow row{in.rule};
  if (apply) row.factors = factors[i];
  write_sums(update_parameter<true>(row, in, i, apply, in.v[i]), scratch, sums);
}
