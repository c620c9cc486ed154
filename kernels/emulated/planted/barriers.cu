// Kernels that are wrong on purpose: threads that miss one another at barriers and warp operations.
//
// The tests look up the line of each `// bug: name` and want it in the device's report.
#include "platform.cuh"

KERNEL(256) planted_divergent_barrier(float* RESTRICT out) {
  out[threadIdx.x] = 1.0f;
  if (threadIdx.x < 32)
    __syncthreads();  // bug: barrier of the first warp
  else
    __syncthreads();  // bug: barrier of the others
}
EXPORT(planted_divergent_barrier)

KERNEL(256) planted_early_return(float* RESTRICT out, int n) {
  if ((int)threadIdx.x >= n) return;
  __syncthreads();  // bug: barrier that some threads miss
  out[threadIdx.x] = 1.0f;
}
EXPORT(planted_early_return)

KERNEL(256) planted_deadlock() {
  if (threadIdx.x < 16)
    __syncwarp();  // bug: warp operation beside a barrier
  else
    __syncthreads();  // bug: barrier beside a warp operation
}
EXPORT(planted_deadlock)

KERNEL(256) planted_divergent_mask(int* RESTRICT out) {
  const unsigned mask = threadIdx.x < 16 ? 0xffffffffu : 0xfffffffeu;
  out[threadIdx.x] = __shfl_xor_sync(mask, (int)threadIdx.x, 1);  // bug: two masks
}
EXPORT(planted_divergent_mask)

KERNEL(256) planted_divergent_operation(int* RESTRICT out) {
  if (threadIdx.x < 16)
    out[threadIdx.x] = __shfl_sync(0xffffffffu, (int)threadIdx.x, 0);  // bug: shuffle
  else
    out[threadIdx.x] = (int)__ballot_sync(0xffffffffu, 1);  // bug: ballot
}
EXPORT(planted_divergent_operation)

KERNEL(256) planted_mask_without_self(int* RESTRICT out) {
  out[threadIdx.x] = (int)__ballot_sync(0xffffu, 1);  // bug: mask without its own lane
}
EXPORT(planted_mask_without_self)

KERNEL(256) planted_returned_lane(int* RESTRICT out) {
  if (threadIdx.x >= 16) return;
  out[threadIdx.x] = (int)__ballot_sync(0xffffffffu, 1);  // bug: a lane has returned
}
EXPORT(planted_returned_lane)
