// SGD with momentum and weight decay over many parameters in one launch; torch.optim.SGD.
//
//   control  [1]    Control     in     learning rate, factor of the gradients, apply or skip
//   grad     [len]  float       in     of each of up to 64 parameters
//   w        [len]  half/float  state  weight; with a master its copy, rounded
//   m        [len]  float       state  momentum
//   p        [len]  float       state  master, or null: then w is what is updated
//
// Launch: blocks of 256 threads, 4,096 elements a block; first_block maps a block to its parameter.
// Cost: 22 bytes per element with a master and w in half, 0.97 GB for the 44 million of Mask R-CNN
// R50-FPN; memory-bound.
// Numerics: fp32, elementwise; the CPU's operations in its order, so the bits are equal.
// Edges: a skipped step writes nothing and never looks at its gradients, which may be non-finite.
#include "control.cuh"
#include "many_tensors.cuh"

constexpr int CAPACITY = 64;  // parameters of a launch: the struct stays under 4 KiB
constexpr int ROUNDS = 4;     // vectors of a thread: three streams of loads, all in flight
constexpr int BLOCK_ELEMENTS = THREADS * VECTOR * ROUNDS;

// The parameters of a launch. Equal to the struct that cuda.rs builds.
struct Parameters {
  const float* grad[CAPACITY];
  void* w[CAPACITY];
  float* m[CAPACITY];
  float* p[CAPACITY];      // null: no master
  uint64_t len[CAPACITY];  // elements
  float weight_decay[CAPACITY];
  float lr_factor[CAPACITY];
  int is_half[CAPACITY];      // w is half, else float
  int first_block[CAPACITY];  // of each parameter; past the last, the blocks of the launch
  float momentum;
  int nesterov;
};
static_assert(sizeof(Parameters) == 56 * CAPACITY + 8, "cuda.rs builds it");
static_assert(sizeof(Parameters) <= 4096 - 16, "what a launch may carry");

// How a parameter is updated.
struct Rule {
  float rate, grad_factor, weight_decay, momentum;
  int nesterov;
  // Returns the new value of w, and updates m.
  DEVICE float update(float w, float& m, float grad) const {
    const float g = grad_factor * grad + weight_decay * w;
    m = momentum * m + g;
    return w - rate * (nesterov ? g + momentum * m : m);
  }
};

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

// Elements first .. first + BLOCK_ELEMENTS of a parameter. The update is computed on `p`: the
// master, and copied to `copy`, or the weight itself.
template <bool MASTER, typename P, typename W>
DEVICE void update_block(const Rule& rule, const float* RESTRICT grad, P* RESTRICT p,
                         float* RESTRICT m, W* RESTRICT copy, uint64_t first, uint64_t len) {
  first += threadIdx.x * VECTOR;
  if (first + (ROUNDS - 1) * THREADS * VECTOR + VECTOR <= len) {
    float4 ps[ROUNDS], ms[ROUNDS], gs[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
      const uint64_t at = first + i * THREADS * VECTOR;
      gs[i] = load4(grad + at), ms[i] = load4(m + at), ps[i] = load4(p + at);
    }
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
      const uint64_t at = first + i * THREADS * VECTOR;
      ps[i].x = rule.update(ps[i].x, ms[i].x, gs[i].x);
      ps[i].y = rule.update(ps[i].y, ms[i].y, gs[i].y);
      ps[i].z = rule.update(ps[i].z, ms[i].z, gs[i].z);
      ps[i].w = rule.update(ps[i].w, ms[i].w, gs[i].w);
      store4(m + at, ms[i]);
      store4(p + at, ps[i]);
      if (MASTER) store4(copy + at, ps[i]);
    }
    return;
  }
  for (int i = 0; i < ROUNDS; i++) {
    const uint64_t from = first + i * THREADS * VECTOR;
    for (uint64_t at = from; at < from + VECTOR && at < len; at++) {
      float momentum = m[at];
      const float value = rule.update(load1(p + at), momentum, grad[at]);
      m[at] = momentum;
      store1(p + at, value);
      if (MASTER) store1(copy + at, value);
    }
  }
}

KERNEL(THREADS) sgd(const Control* RESTRICT control, const Parameters in) {
  if (control->applied == 0.0f) return;
  const int i = tensor_of(in.first_block, blockIdx.x);
  const Rule rule{control->rate(in.lr_factor[i]), control->grad_factor, in.weight_decay[i],
                  in.momentum, in.nesterov};
  const uint64_t first = (uint64_t)(blockIdx.x - in.first_block[i]) * BLOCK_ELEMENTS;
  const uint64_t len = in.len[i];
  half* const narrow = (half*)in.w[i];
  float* const wide = (float*)in.w[i];
  const float* const grad = in.grad[i];
  if (in.p[i] && in.is_half[i])
    update_block<true>(rule, grad, in.p[i], in.m[i], narrow, first, len);
  else if (in.p[i])
    update_block<true>(rule, grad, in.p[i], in.m[i], wide, first, len);
  else if (in.is_half[i])
    update_block<false>(rule, grad, narrow, in.m[i], (half*)nullptr, first, len);
  else
    update_block<false>(rule, grad, wide, in.m[i], (float*)nullptr, first, len);
}
EXPORT(sgd)
