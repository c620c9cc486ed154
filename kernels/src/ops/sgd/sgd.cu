// SGD with momentum and weight decay over many parameters in one launch; torch.optim.SGD.
//
//   control  [1]    Control     in     learning rate, factor of the gradients, apply or skip
//   grad     [len]  float       in     of each of up to 64 parameters
//   w        [len]  half/float  state  weight; with a master its copy, rounded
//   m        [len]  float       state  momentum
//   p        [len]  float       state  master, or null: then w is what is updated
//
// sgd_sums and sgd_stats, in place of sgd where statistics are asked for:
//   sums     [blocks, 3]  double  scratch  of a block: weights, their squares, gradients
//   stats    [n, 3]       float   out      mean and L2 norm of a weight, mean of its gradient
//
// Launch: blocks of 256 threads, 4,096 elements a block; first_block maps a block to its parameter;
// sgd_stats is one block, a warp per parameter.
// Cost: 22 bytes per element with a master and w in half, 0.97 GB for the 44 million of Mask R-CNN
// R50-FPN; memory-bound.
// Numerics: fp32, elementwise; the CPU's operations in its order, so the bits are equal.
// Edges: a skipped step changes nothing; sgd never looks at its gradients, which may be non-finite.
#include "control.cuh"
#include "update.cuh"

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

template <bool STATS>
DEVICE Seen update(const Control* RESTRICT control, const Parameters& in) {
  const int i = tensor_of(in.first_block, blockIdx.x);
  const Rule rule{control->rate(in.lr_factor[i]), control->grad_factor, in.weight_decay[i],
                  in.momentum, in.nesterov};
  return update_parameter<STATS>(rule, in, i, control->applied != 0.0f);
}

KERNEL(THREADS) sgd(const Control* RESTRICT control, const Parameters in) {
  if (control->applied == 0.0f) return;
  update<false>(control, in);
}
EXPORT(sgd)

KERNEL(THREADS)
sgd_sums(const Control* RESTRICT control, const Parameters in, double* RESTRICT sums) {
  SHARED(double, scratch, 32);
  write_sums(update<true>(control, in), scratch, sums);
}
EXPORT(sgd_sums)

KERNEL(STATS_THREADS)
sgd_stats(const Lengths in, const double* RESTRICT sums, float* RESTRICT stats) {
  statistics(in, sums, stats);
}
EXPORT(sgd_stats)
