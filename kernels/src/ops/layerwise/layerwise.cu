// Updates whose rates follow the norms of each parameter: NovoGrad as in its paper and as apex's
// FusedNovoGrad, and LARS.
//
// layerwise_squares, of LARS:
//   control  [1]       Control     in       apply or skip
//   weight   [len]     half/float  in       of each of up to 64 parameters; its master, if any
//   sums     [blocks]  double      out      sum of squares of each block
//
// layerwise_factors:
//   control  [1]       Control     in       learning rate, factor of the gradients, apply or skip
//   norms    [n]       float       in       of the gradients as given
//   sums     [blocks]  double      in       sums of squares of the weights, or null
//   average  [n]       float       state    root of NovoGrad's second moment, or null
//   steps    [1]       int         state    updates applied, or null
//   factors  [n, 5]    float       out      of each parameter
//
// layerwise, or layerwise_sums and layerwise_stats where statistics are asked for:
//   control  [1]          Control     in       apply or skip
//   grad     [len]        float       in       of each of up to 64 parameters
//   w        [len]        half/float  state    weight; with a master its copy, rounded
//   m        [len]        float       state    momentum
//   p        [len]        float       state    master, or null: then w is what is updated
//   factors  [n, 5]       float       in       of each parameter
//   sums     [blocks, 3]  double      scratch  of a block: weights, their squares, gradients
//   stats    [n, 3]       float       out      mean and L2 norm of a weight, mean of its gradient
//
// Launch: blocks of 256 threads, 4,096 elements a block; first_block maps a block to its parameter;
// layerwise_factors and layerwise_stats are one block, a warp per parameter.
// Cost: 22 bytes per element with a master and w in half, 0.97 GB for the 44 million of Mask R-CNN
// R50-FPN, and 4 more of LARS; memory-bound.
// Numerics: factors in double, rounded once; then fp32, elementwise, as on the CPU.
// Edges: a skipped step changes nothing; a gradient of zeros, or a weight of them, divides nothing.
#include "control.cuh"
#include "update.cuh"

constexpr int FACTORS_THREADS = 1024;
constexpr int FACTORS = 5;

// Weights of a launch. Equal to the struct that cuda.rs builds.
struct Weights {
  const void* weight[CAPACITY];
  uint64_t len[CAPACITY];
  int is_half[CAPACITY];
  int first_block[CAPACITY];  // of each parameter; past the last, the blocks of the launch
};
static_assert(sizeof(Weights) == 24 * CAPACITY, "cuda.rs builds it");

// What the factors of a launch's parameters depend on. Equal to the struct that cuda.rs builds.
struct Tensors {
  float weight_decay[CAPACITY];
  float lr_factor[CAPACITY];
  int adapts[CAPACITY];
  int first_block[CAPACITY];
  int blocks;
  int count;    // parameters
  int is_last;  // launch of the step: it counts
};
static_assert(sizeof(Tensors) == 16 * CAPACITY + 12, "cuda.rs builds it");

// The parameters of an update. Equal to the struct that cuda.rs builds.
struct Parameters {
  const float* grad[CAPACITY];
  void* w[CAPACITY];
  float* m[CAPACITY];
  float* p[CAPACITY];      // null: no master
  uint64_t len[CAPACITY];  // elements
  int is_half[CAPACITY];   // w is half, else float
  int first_block[CAPACITY];
};
static_assert(sizeof(Parameters) == 48 * CAPACITY, "cuda.rs builds it");

// `LayerRule` of rule.rs. Equal to the struct that cuda.rs builds.
struct LayerRule {
  float beta1;  // LARS: momentum
  float beta2;  // LARS: trust
  float eps;
  int is_lars, is_apex, bias_correction, reg_inside, averaging, init_zero;
};
static_assert(sizeof(LayerRule) == 36, "cuda.rs builds it");

// Factors of a parameter's update.
struct Factors {
  float keep, of_grad, of_weight, of_momentum, decay;
  // Returns the new value of w, and updates m.
  DEVICE float update(float w, float& m, float grad) const {
    m = keep * m + (of_grad * grad + of_weight * w);
    return w - (of_momentum * m + decay * w);
  }
};
static_assert(sizeof(Factors) == FACTORS * sizeof(float), "a row of factors");

// What the rules know of one parameter.
struct Known {
  double rate, weight_decay, grad_factor;
  double norm;  // of the gradient, unscaled and clipped
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

DEVICE Factors lars(const LayerRule& rule, const Known& known, int adapts, double weight_norm) {
  double local = 1.0;
  if (adapts && known.norm > 0.0 && weight_norm > 0.0)
    local = (double)rule.beta2 * weight_norm / (known.norm + known.weight_decay * weight_norm);
  const double rate = known.rate * local;
  return Factors{rule.beta1, (float)(rate * known.grad_factor), (float)(rate * known.weight_decay),
                 1.0f, 0.0f};
}

// The factors of update t, and the new root of the second moment.
DEVICE Factors novograd(const LayerRule& rule, const Known& known, float& average, unsigned t) {
  const double beta1 = rule.beta1, beta2 = rule.beta2, eps = rule.eps;
  const bool first = t <= 1;
  const double start = rule.init_zero ? 0.0 : known.norm;
  const double before = first ? start : (double)average;
  double root = known.norm;
  if (!first || rule.is_apex)
    root = sqrt(beta2 * (before * before) + (1.0 - beta2) * (known.norm * known.norm));
  average = (float)root;
  if (!rule.is_apex) {
    const double inverted = inverse(first ? root : root + eps);
    return Factors{rule.beta1, (float)(inverted * known.grad_factor), (float)known.weight_decay,
                   (float)known.rate, 0.0f};
  }
  const double c1 = rule.bias_correction ? 1.0 - power(beta1, t) : 1.0;
  const double c2 = rule.bias_correction ? sqrt(1.0 - power(beta2, t)) : 1.0;
  const double taken = rule.averaging ? 1.0 - beta1 : 1.0;
  const double inverted = inverse(root / c2 + eps);
  if (rule.reg_inside)
    return Factors{rule.beta1, (float)(taken * inverted * known.grad_factor),
                   (float)(taken * known.weight_decay), (float)(known.rate / c1), 0.0f};
  return Factors{rule.beta1, (float)(taken * known.grad_factor), 0.0f,
                 (float)(known.rate * inverted / c1), (float)(known.rate * known.weight_decay)};
}

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
layerwise_squares(const Control* RESTRICT control, const Weights in, double* RESTRICT sums) {
  SHARED(double, scratch, 32);
  if (control->applied == 0.0f) return;
  const int i = tensor_of(in.first_block, blockIdx.x);
  const uint64_t first = (uint64_t)(blockIdx.x - in.first_block[i]) * BLOCK_ELEMENTS;
  double sum = in.is_half[i] ? squares((const half*)in.weight[i], first, in.len[i])
                             : squares((const float*)in.weight[i], first, in.len[i]);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
EXPORT(layerwise_squares)

KERNEL(FACTORS_THREADS)
layerwise_factors(const Control* RESTRICT control, const Tensors in, const LayerRule rule,
                  const float* RESTRICT norms, const double* RESTRICT sums, float* RESTRICT average,
                  int* RESTRICT steps, Factors* RESTRICT factors) {
  if (control->applied == 0.0f) return;
  const int lane = threadIdx.x % 32;
  const unsigned t = rule.is_lars ? 0 : (unsigned)*steps + 1;
  for (int i = threadIdx.x / 32; i < in.count; i += blockDim.x / 32) {
    double sum = 0.0;
    if (rule.is_lars) {
      const int end = i + 1 < in.count ? in.first_block[i + 1] : in.blocks;
      for (int block = in.first_block[i] + lane; block < end; block += 32) sum += sums[block];
      sum = warp_sum(sum);
    }
    if (lane > 0) continue;
    Known known;
    const double factor = (double)in.lr_factor[i];
    known.rate = (double)control->lr * factor + (double)control->warmup_cut * (factor - 1.0);
    known.weight_decay = in.weight_decay[i];
    known.grad_factor = control->grad_factor;
    known.norm = (double)norms[i] * known.grad_factor;
    factors[i] = rule.is_lars ? lars(rule, known, in.adapts[i], sqrt(sum))
                              : novograd(rule, known, average[i], t);
  }
  __syncthreads();
  if (threadIdx.x == 0 && in.is_last && !rule.is_lars) *steps = (int)t;
}
EXPORT(layerwise_factors)

template <bool STATS>
DEVICE Seen update(const Control* RESTRICT control, const Parameters& in,
                   const Factors* RESTRICT factors) {
  const int i = tensor_of(in.first_block, blockIdx.x);
  const bool apply = control->applied != 0.0f;
  Factors rule{};
  if (apply) rule = factors[i];
  return update_parameter<STATS>(rule, in, i, apply);
}

KERNEL(THREADS)
layerwise(const Control* RESTRICT control, const Parameters in, const Factors* RESTRICT factors) {
  if (control->applied == 0.0f) return;
  update<false>(control, in, factors);
}
EXPORT(layerwise)

KERNEL(THREADS)
layerwise_sums(const Control* RESTRICT control, const Parameters in,
               const Factors* RESTRICT factors, double* RESTRICT sums) {
  SHARED(double, scratch, 32);
  write_sums(update<true>(control, in, factors), scratch, sums);
}
EXPORT(layerwise_sums)

KERNEL(STATS_THREADS)
layerwise_stats(const Lengths in, const double* RESTRICT sums, float* RESTRICT stats) {
  statistics(in, sums, stats);
}
EXPORT(layerwise_stats)
