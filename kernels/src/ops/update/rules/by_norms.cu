// The elementwise update of LARS and NovoGrad with factors per parameter.
//
// Tensors: same as sgd.cu, plus factors [n, 5] float.
//
// Launch: as sgd.cu, with sums or without.
// Cost: 22 bytes per element with a master and w in half; memory-bound.
// Numerics: fp32, elementwise, bit-identical to the CPU: the same operations in the same order.
// Edge cases: a skipped step changes nothing, and its gradients may be non-finite.
#include "update.cuh"

KERNEL(THREADS)
update_by_norms(const Control* RESTRICT control, const Parameters in,
                const Factors* RESTRICT factors) {
  if (control->applied == 0.0f) return;
  const int i = tensor_of(in.first_block, blockIdx.x);
  update_parameter<false>(factors[i], in, i, true);
}

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
