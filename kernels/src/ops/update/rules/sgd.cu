// SGD with momentum; torch.optim.SGD.
//
//   control  [1]          Control     in       rate, gradient scale, apply or skip
//   grad     [len]        float       in       one of up to 64 gradients
//   w        [len]        half/float  state    weight; with a master its copy, rounded
//   m        [len]        float       state    momentum
//   p        [len]        float       state    master weight, or null: then w is updated
//   sums     [blocks, 3]  double      scratch  sgd_sums: per block, see update.cuh
//
// Launch: blocks of 256 threads, 4,096 elements per block; first_block maps blocks to parameters.
// Cost: 22 bytes per element with a master and w in half, 0.97 GB for the 44 million of R50-FPN;
// memory-bound.
// Numerics: fp32, elementwise, bit-identical to the CPU: the same operations in the same order.
// Edge cases: a skipped step changes nothing, and its gradients may be non-finite.
#include "update.cuh"

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

struct SgdParameters : Parameters {
  float momentum;
  int nesterov;
  DEVICE SgdRow row(const Control& control, int i) const {
    return SgdRow{control.rate(lr_factor[i]), control.grad_factor, weight_decay[i], momentum,
                  nesterov};
  }
};
static_assert(sizeof(SgdParameters) == sizeof(Parameters) + 8, "the launch builds it");

KERNEL(THREADS)
sgd(const Control* RESTRICT control, const SgdParameters in) {
  if (control->applied == 0.0f) return;
  const int i = tensor_of(in.first_block, blockIdx.x);
  update_parameter<false>(in.row(*control, i), in, i, true);
}

KERNEL(THREADS)
sgd_sums(const Control* RESTRICT control, const SgdParameters in, double* RESTRICT sums) {
  SHARED(double, scratch, 32);
  const int i = tensor_of(in.first_block, blockIdx.x);
  const bool apply = control->applied != 0.0f;
  const SgdRow row = in.row(*control, i);
  write_sums(update_parameter<true>(row, in, i, apply), scratch, sums);
}
