// Updates of all parameters of a model: SGD and AdamW as torch.optim, NovoGrad as in its paper and
// as apex's FusedNovoGrad, and LARS.
//
// update_squares, of LARS:
//   control  [1]       Control     in       apply or skip
//   w        [len]     half/float  in       of each of up to 64 parameters
//   p        [len]     float       in       its master, or null
//   sums     [blocks]  double      out      sum of squares of each block
//
// lars_factors, novograd_factors and adamw_factors:
//   control  [1]       Control     in       learning rate, factor of the gradients, apply or skip
//   norms    [n]       float       in       LARS, NovoGrad: of the gradients as given
//   sums     [blocks]  double      in       LARS: sums of squares of the weights
//   average  [n]       float       state    NovoGrad: root of the second moment
//   steps    [1]       int         state    NovoGrad, AdamW: updates applied
//   factors  [n, 5]    float       out      of each parameter
//
// sgd, update_by_norms and adamw; for statistics with _sums, and then update_stats:
//   control  [1]          Control     in       rate, factor of the gradients, apply or skip
//   grad     [len]        float       in       of each of up to 64 parameters
//   w        [len]        half/float  state    weight; with a master its copy, rounded
//   m        [len]        float       state    momentum
//   v        [len]        float       state    second moment, of adamw
//   p        [len]        float       state    master, or null: then w is what is updated
//   factors  [n, 5]       float       in       of each parameter, but for sgd
//   sums     [blocks, 3]  double      scratch  of a block: weights, their squares, gradients
//   stats    [n, 3]       float       out      mean and L2 norm of a weight, mean of its gradient
//
// average, after count_average:
//   control   [1]    Control  in     apply or skip
//   w         [len]  float    in     of each of up to 64 parameters, updated, or null
//   p         [len]  float    in     its master, or null
//   m         [len]  float    state  its average
//   averaged  [1]    int      in     updates averaged, this one among them
//
// Launch: blocks of 256 threads, 4,096 elements a block; first_block maps a block to its parameter;
// factors and statistics are one block, a warp per parameter.
// Cost: 22 bytes per element with a master and w in half, 0.97 GB for the 44 million of R50-FPN; 4
// bytes more of LARS, 8 more of AdamW, 12 more of averages; memory-bound.
// Numerics: factors in double, rounded once; then fp32, elementwise, the CPU's operations in its
// order, so the bits are equal.
// Edges: a skipped step changes nothing, and its gradients may be non-finite; a gradient of zeros,
// or a weight of them, divides nothing.
#include "control.cuh"
#include "update.cuh"

constexpr int FACTORS = 5;

// The rules, as in rules.rs, and what each makes of a parameter: a row that updates an element, and
// returns the new value of w. Equal to the structs that cuda.rs builds.

struct SgdRow {
  static constexpr bool HAS_SECOND_MOMENT = false;
  float rate, grad_factor, weight_decay, momentum;
  int nesterov;
  DEVICE float update(float w, float& m, float&, float grad) const {
    const float g = grad_factor * grad + weight_decay * w;
    m = momentum * m + g;
    return w - rate * (nesterov ? g + momentum * m : m);
  }
};

struct Factors {
  static constexpr bool HAS_SECOND_MOMENT = false;
  float keep, of_grad, of_weight, of_momentum, decay;
  DEVICE float update(float w, float& m, float&, float grad) const {
    m = keep * m + (of_grad * grad + of_weight * w);
    return w - (of_momentum * m + decay * w);
  }
};
static_assert(sizeof(Factors) == FACTORS * sizeof(float), "a row of factors");

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

// The values of one parameter that a rule by norms needs.
struct Known {
  double rate, weight_decay, grad_factor;
  double norm;  // of the gradient, unscaled and clipped
  DEVICE Known(const Control& control, const Parameters& in, int i, float norm_as_given)
      : weight_decay(in.weight_decay[i]), grad_factor(control.grad_factor) {
    const double factor = (double)in.lr_factor[i];
    rate = (double)control.lr * factor + (double)control.warmup_cut * (factor - 1.0);
    norm = (double)norm_as_given * grad_factor;
  }
};

// 1 / x, and 0 of 0.
DEVICE double inverse(double x) { return x > 0.0 ? 1.0 / x : 0.0; }

DEVICE double power(double base, unsigned exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

struct Sgd {
  float momentum;
  int nesterov;
  DEVICE SgdRow row(const Control& control, const Parameters& in, int i) const {
    return SgdRow{control.rate(in.lr_factor[i]), control.grad_factor, in.weight_decay[i], momentum,
                  nesterov};
  }
};
struct SgdParameters : Parameters {
  Sgd rule;
};
static_assert(sizeof(SgdParameters) == sizeof(Parameters) + 8, "cuda.rs builds it");

struct Lars {
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
struct LarsParameters : Parameters {
  Lars rule;
};
static_assert(sizeof(LarsParameters) == sizeof(Parameters) + 8, "cuda.rs builds it");

struct Novograd {
  float beta1, beta2, eps;
  int is_apex, bias_correction, reg_inside, averaging, init_zero;
  // The factors of update t; `average` becomes the new root of the second moment.
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
struct NovogradParameters : Parameters {
  Novograd rule;
  int is_last;  // of the step: it counts
};
static_assert(sizeof(NovogradParameters) == sizeof(Parameters) + 40, "cuda.rs builds it");

struct AdamwTimeParameters : Parameters {
  double beta1, beta2;
  int is_last;  // of the step: it counts
  int unused;
};
static_assert(sizeof(AdamwTimeParameters) == sizeof(Parameters) + 24, "cuda.rs builds it");
struct AdamwParameters : Parameters {
  float* v[CAPACITY];
  AdamwRule rule;
};
static_assert(sizeof(AdamwParameters) == sizeof(Parameters) + 8 * CAPACITY + 16,
              "cuda.rs builds it");
static_assert(sizeof(AdamwParameters) <= 4096 - 96, "a launch carries it, with other arguments");

template <typename T>
DEVICE double squares(const T* RESTRICT weight, uint64_t first, uint64_t len) {
  double sum = 0.0;
  for (int i = 0; i < ROUNDS; i++) {
    const uint64_t from = first + threadIdx.x * VECTOR + i * THREADS * VECTOR;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (from + VECTOR <= len) {
      v = load4(weight + from);
    } else {
      if (from < len) v.x = load1(weight + from);
      if (from + 1 < len) v.y = load1(weight + from + 1);
      if (from + 2 < len) v.z = load1(weight + from + 2);
    }
    sum += ((double)v.x * v.x + (double)v.y * v.y) + ((double)v.z * v.z + (double)v.w * v.w);
  }
  return sum;
}

KERNEL(THREADS)
update_squares(const Control* RESTRICT control, const Parameters in, double* RESTRICT sums) {
  SHARED(double, scratch, 32);
  if (control->applied == 0.0f) return;
  const int i = tensor_of(in.first_block, blockIdx.x);
  const uint64_t first = (uint64_t)(blockIdx.x - in.first_block[i]) * BLOCK_ELEMENTS;
  double sum = 0.0;
  if (in.p[i])
    sum = squares(in.p[i], first, in.len[i]);
  else if (in.is_half(i))
    sum = squares((const half*)in.w[i], first, in.len[i]);
  else
    sum = squares((const float*)in.w[i], first, in.len[i]);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
EXPORT(update_squares)

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
    if (lane == 0) factors[i] = in.rule.factors(known, adapts, sqrt(sum));
  }
}
EXPORT(lars_factors)

KERNEL(ROOT_THREADS)
novograd_factors(const Control* RESTRICT control, const NovogradParameters in,
                 const float* RESTRICT norms, float* RESTRICT average, int* RESTRICT steps,
                 Factors* RESTRICT factors) {
  if (control->applied == 0.0f) return;
  const unsigned t = (unsigned)*steps + 1;
  for (int i = threadIdx.x; i < in.count; i += blockDim.x)
    factors[i] = in.rule.factors(Known(*control, in, i, norms[i]), average[i], t);
  __syncthreads();
  if (threadIdx.x == 0 && in.is_last) *steps = (int)t;
}
EXPORT(novograd_factors)

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
EXPORT(adamw_factors)

KERNEL(THREADS)
adamw(const Control* RESTRICT control, const AdamwParameters in,
      const AdamwFactors* RESTRICT factors) {
  if (control->applied == 0.0f) return;
  const int i = tensor_of(in.first_block, blockIdx.x);
  update_parameter<false>(AdamwRow{in.rule, factors[i]}, in, i, true, in.v[i]);
}
EXPORT(adamw)

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
EXPORT(adamw_sums)

KERNEL(THREADS)
sgd(const Control* RESTRICT control, const SgdParameters in) {
  if (control->applied == 0.0f) return;
  const int i = tensor_of(in.first_block, blockIdx.x);
  update_parameter<false>(in.rule.row(*control, in, i), in, i, true);
}
EXPORT(sgd)

KERNEL(THREADS)
sgd_sums(const Control* RESTRICT control, const SgdParameters in, double* RESTRICT sums) {
  SHARED(double, scratch, 32);
  const int i = tensor_of(in.first_block, blockIdx.x);
  const bool apply = control->applied != 0.0f;
  const SgdRow row = in.rule.row(*control, in, i);
  write_sums(update_parameter<true>(row, in, i, apply), scratch, sums);
}
EXPORT(sgd_sums)

KERNEL(THREADS)
update_by_norms(const Control* RESTRICT control, const Parameters in,
                const Factors* RESTRICT factors) {
  if (control->applied == 0.0f) return;
  const int i = tensor_of(in.first_block, blockIdx.x);
  update_parameter<false>(factors[i], in, i, true);
}
EXPORT(update_by_norms)

KERNEL(THREADS)
update_by_norms_sums(const Control* RESTRICT control, const Parameters in,
                     const Factors* RESTRICT factors, double* RESTRICT sums) {
  SHARED(double, scratch, 32);
  const int i = tensor_of(in.first_block, blockIdx.x);
  const bool apply = control->applied != 0.0f;
  Factors row{};
  if (apply) row = factors[i];
  write_sums(update_parameter<true>(row, in, i, apply), scratch, sums);
}
EXPORT(update_by_norms_sums)

struct AverageParameters : Parameters {
  double decay, root;
};
static_assert(sizeof(AverageParameters) == sizeof(Parameters) + 16, "cuda.rs builds it");

KERNEL(32)
count_average(const Control* RESTRICT control, int* RESTRICT averaged) {
  if (control->applied != 0.0f && threadIdx.x == 0) *averaged = (int)((unsigned)*averaged + 1);
}
EXPORT(count_average)

KERNEL(THREADS)
average(const Control* RESTRICT control, const AverageParameters in, const int* RESTRICT averaged) {
  SHARED(float, shared, 1);
  if (control->applied == 0.0f) return;
  if (threadIdx.x == 0)
    shared[0] = (float)(1.0 - in.decay * (1.0 - power(in.root, (unsigned)*averaged)));
  __syncthreads();
  const float take = shared[0];
  const int i = tensor_of(in.first_block, blockIdx.x);
  const float* const value = in.p[i] ? in.p[i] : (const float*)in.w[i];
  const uint64_t block = (uint64_t)(blockIdx.x - in.first_block[i]) * BLOCK_ELEMENTS;
  for (int k = 0; k < ROUNDS; k++) {
    const uint64_t from = block + threadIdx.x * VECTOR + k * THREADS * VECTOR;
    if (from + VECTOR <= in.len[i]) {
      const float4 v = load4(value + from);
      float4 e = load4(in.m[i] + from);
      e.x += take * (v.x - e.x), e.y += take * (v.y - e.y);
      e.z += take * (v.z - e.z), e.w += take * (v.w - e.w);
      store4(in.m[i] + from, e);
      continue;
    }
    for (uint64_t at = from; at < in.len[i] && at < from + VECTOR; at++)
      in.m[i][at] += take * (value[at] - in.m[i][at]);
  }
}
EXPORT(average)

KERNEL(ROOT_THREADS)
update_stats(const Parameters in, const double* RESTRICT sums, float* RESTRICT stats) {
  statistics(in, sums, stats);
}
EXPORT(update_stats)
