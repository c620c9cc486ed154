// The update of parameters by an optimizer: elementwise over weight, momentum and gradient, with or
// without an fp32 master, and optionally sums of the values read and written.
#pragma once
#include "control.cuh"
#include "many_tensors.cuh"
#include "reduce.cuh"

constexpr int CAPACITY = 64;  // parameters per launch: its struct stays under 4 KiB
constexpr int IS_HALF = 1;    // flags of a parameter: w is half, else float
constexpr int ADAPTS = 2;     // its rate depends on the norms
constexpr int ROUNDS = 4;     // vectors per thread: three streams of loads, all in flight
constexpr int BLOCK_ELEMENTS = THREADS * VECTOR * ROUNDS;
constexpr int SUMS = 3;  // per block, and statistics per parameter
constexpr int ROOT_THREADS = 1024;
constexpr int FACTORS = 5;  // per parameter

// Loads and stores of a weight as float.
DEVICE float4 load4(const float* p) { return *(const float4*)p; }
DEVICE float4 load4(const half* p) {
  const uint2 packed = *(const uint2*)p;
  const float2 low = __half22float2(((const half2*)&packed)[0]);
  const float2 high = __half22float2(((const half2*)&packed)[1]);
  return make_float4(low.x, low.y, high.x, high.y);
}
DEVICE void store4(float* p, float4 v) { *(float4*)p = v; }
DEVICE void store4(half* p, float4 v) {
  uint2 packed;
  ((half2*)&packed)[0] = __floats2half2_rn(v.x, v.y);
  ((half2*)&packed)[1] = __floats2half2_rn(v.z, v.w);
  *(uint2*)p = packed;
}
DEVICE float load1(const float* p) { return *p; }
DEVICE float load1(const half* p) { return __half2float(*p); }
DEVICE void store1(float* p, float v) { *p = v; }
DEVICE void store1(half* p, float v) { *p = __float2half_rn(v); }

// A thread's sums over a parameter, for statistics: weights after the update, and gradients.
struct Seen {
  double weights = 0.0, squares = 0.0, grads = 0.0;
  DEVICE void add(float w, float g) {
    weights += (double)w, squares += (double)w * (double)w, grads += (double)g;
  }
};

// Elements first .. first + BLOCK_ELEMENTS of a parameter. The update is computed on `p`: the
// weight itself, or its master, which is then copied to `copy`. If the update is skipped, only sums
// are computed. `v` is the second moment of a rule that has one.
template <bool MASTER, bool STATS, typename Rule, typename P, typename W>
DEVICE void update_block(const Rule& rule, const float* RESTRICT grad, P* RESTRICT p,
                         float* RESTRICT m, float* RESTRICT v, W* RESTRICT copy, uint64_t first,
                         uint64_t len, bool apply, Seen& seen) {
  first += threadIdx.x * VECTOR;
  if ((!STATS || apply) && first + (ROUNDS - 1) * THREADS * VECTOR + VECTOR <= len) {
    float4 ps[ROUNDS], ms[ROUNDS], vs[ROUNDS], gs[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
      const uint64_t at = first + i * THREADS * VECTOR;
      gs[i] = load4(grad + at), ms[i] = load4(m + at), ps[i] = load4(p + at);
      if (Rule::HAS_SECOND_MOMENT) vs[i] = load4(v + at);
    }
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
      const uint64_t at = first + i * THREADS * VECTOR;
      ps[i].x = rule.update(ps[i].x, ms[i].x, vs[i].x, gs[i].x);
      ps[i].y = rule.update(ps[i].y, ms[i].y, vs[i].y, gs[i].y);
      ps[i].z = rule.update(ps[i].z, ms[i].z, vs[i].z, gs[i].z);
      ps[i].w = rule.update(ps[i].w, ms[i].w, vs[i].w, gs[i].w);
      store4(m + at, ms[i]);
      if (Rule::HAS_SECOND_MOMENT) store4(v + at, vs[i]);
      store4(p + at, ps[i]);
      if (MASTER) store4(copy + at, ps[i]);
      if (!STATS) continue;
      seen.add(ps[i].x, gs[i].x), seen.add(ps[i].y, gs[i].y);
      seen.add(ps[i].z, gs[i].z), seen.add(ps[i].w, gs[i].w);
    }
    return;
  }
  for (int i = 0; i < ROUNDS; i++) {
    const uint64_t from = first + i * THREADS * VECTOR;
    for (uint64_t at = from; at < from + VECTOR && at < len; at++) {
      if (STATS && !apply) {
        seen.add(load1(p + at), grad[at]);
        continue;
      }
      float momentum = m[at], second = Rule::HAS_SECOND_MOMENT ? v[at] : 0.0f;
      const float value = rule.update(load1(p + at), momentum, second, grad[at]);
      m[at] = momentum;
      if (Rule::HAS_SECOND_MOMENT) v[at] = second;
      store1(p + at, value);
      if (MASTER) store1(copy + at, value);
      if (STATS) seen.add(value, grad[at]);
    }
  }
}

// The parameters of a launch. Same layout as the struct that the launches of parameter_update
// build.
struct Parameters {
  const float* grad[CAPACITY];
  void* w[CAPACITY];
  float* m[CAPACITY];
  float* p[CAPACITY];      // null: no master
  uint32_t len[CAPACITY];  // elements
  float weight_decay[CAPACITY];
  float lr_factor[CAPACITY];
  int flags[CAPACITY];
  int first_block[CAPACITY];  // past the last parameter: the launch's number of blocks
  int blocks;
  int count;  // parameters

  DEVICE bool is_half(int i) const { return (flags[i] & IS_HALF) != 0; }
  // One past the last block of parameter `i`.
  DEVICE int end_block(int i) const { return i + 1 < count ? first_block[i + 1] : blocks; }
};
static_assert(sizeof(Parameters) == 52 * CAPACITY + 8, "the launch builds it");

// The block's elements of parameter `i` of a launch; `v` is its second moment, if the rule has one.
template <bool STATS, typename Rule>
DEVICE Seen update_parameter(const Rule& rule, const Parameters& in, int i, bool apply,
                             float* v = nullptr) {
  const uint64_t first = (uint64_t)(blockIdx.x - in.first_block[i]) * BLOCK_ELEMENTS;
  const uint64_t len = in.len[i];
  half* const narrow = (half*)in.w[i];
  float* const wide = (float*)in.w[i];
  const float* const grad = in.grad[i];
  Seen seen;
  if (in.p[i] && in.is_half(i))
    update_block<true, STATS>(rule, grad, in.p[i], in.m[i], v, narrow, first, len, apply, seen);
  else if (in.p[i])
    update_block<true, STATS>(rule, grad, in.p[i], in.m[i], v, wide, first, len, apply, seen);
  else if (in.is_half(i))
    update_block<false, STATS>(rule, grad, narrow, in.m[i], v, (half*)nullptr, first, len,
                               apply, seen);
  else
    update_block<false, STATS>(rule, grad, wide, in.m[i], v, (float*)nullptr, first, len,
                               apply, seen);
  return seen;
}

// Writes the sums of a block: weights, their squares, gradients; `scratch` as for `block_sum`.
DEVICE void write_sums(const Seen& seen, double* scratch, double* RESTRICT sums) {
  const double weights = block_sum(seen.weights, scratch);
  const double squares = block_sum(seen.squares, scratch);
  const double grads = block_sum(seen.grads, scratch);
  if (threadIdx.x > 0) return;
  double* const of = sums + (uint64_t)SUMS * blockIdx.x;
  of[0] = weights, of[1] = squares, of[2] = grads;
}

// Statistics of each parameter from the sums of its blocks: mean and L2 norm of the weight, mean of
// the gradient; zeros for one without elements. One warp each.
DEVICE void statistics(const Parameters& in, const double* RESTRICT sums, float* RESTRICT stats) {
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x / 32; i < in.count; i += blockDim.x / 32) {
    const int end = in.end_block(i);
    double of[SUMS];
    for (int k = 0; k < SUMS; k++) {
      double sum = 0.0;
      for (int block = in.first_block[i] + lane; block < end; block += 32)
        sum += sums[(uint64_t)SUMS * block + k];
      of[k] = warp_sum(sum);
    }
    if (lane > 0) continue;
    const double len = in.len[i] > 0 ? (double)in.len[i] : 1.0;
    stats[SUMS * i] = (float)(of[0] / len);
    stats[SUMS * i + 1] = (float)sqrt(of[1]);
    stats[SUMS * i + 2] = (float)(of[2] / len);
  }
}

// The values of one parameter that factors are computed from.
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

DEVICE double power(double base, unsigned exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

// An update with factors computed from norms.
struct Factors {
  static constexpr bool HAS_SECOND_MOMENT = false;
  float keep, of_grad, of_weight, of_momentum, decay;
  DEVICE float update(float w, float& m, float&, float grad) const {
    m = keep * m + (of_grad * grad + of_weight * w);
    return w - (of_momentum * m + decay * w);
  }
};
static_assert(sizeof(Factors) == FACTORS * sizeof(float), "a row of factors");
