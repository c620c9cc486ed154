// Adds the gradients of a micro-step to the sums of earlier ones, many parameters per launch.
//
// accumulate, for each of up to 64 parameters:
//   grad   [len]  float  in   gradient of this micro-step
//   sum    [len]  float  in   sum of earlier micro-steps; not read if held is 0
//   total  [len]  float  out  grad + sum; may alias sum
//   held   [1]    int    in   number of micro-steps in the sums
//
// accumulate_count:
//   held  [1]  int  state  incremented, or set to 0
//
// Launch: blocks of 256 threads, 4,096 elements per block; first_block maps blocks to parameters.
// Cost: 12 bytes per element, 0.53 GB for the 44 million of Mask R-CNN R50-FPN; memory-bound.
// Numerics: fp32, elementwise, in the order of the micro-steps.
// Edge cases: a parameter without elements has no block.
//
// accumulate_count is a separate kernel, since every block of accumulate reads held.
#include "many_tensors.cuh"

constexpr int CAPACITY = 64;  // parameters per launch: the struct stays under 4 KiB
constexpr int ROUNDS = 4;     // vectors per thread
constexpr int BLOCK_ELEMENTS = THREADS * VECTOR * ROUNDS;

// The parameters of a launch. Same layout as the struct that the launch builds.
struct Parameters {
  const float* grad[CAPACITY];
  const float* sum[CAPACITY];
  float* total[CAPACITY];
  uint64_t len[CAPACITY];
  int first_block[CAPACITY];  // after the last parameter: the number of blocks
};
static_assert(sizeof(Parameters) == 36 * CAPACITY, "the launch builds it");

KERNEL(THREADS) accumulate(const int* RESTRICT held, const Parameters in) {
  const int i = tensor_of(in.first_block, blockIdx.x);
  const bool first_step = *held == 0;
  const float* const grad = in.grad[i];
  const float* const sum = in.sum[i];
  float* const total = in.total[i];
  const uint64_t len = in.len[i];
  uint64_t at = (uint64_t)(blockIdx.x - in.first_block[i]) * BLOCK_ELEMENTS + threadIdx.x * VECTOR;
  for (int round = 0; round < ROUNDS; round++, at += THREADS * VECTOR) {
    if (at + VECTOR <= len) {
      float4 g = *(const float4*)(grad + at);
      if (!first_step) {
        const float4 s = *(const float4*)(sum + at);
        g = make_float4(s.x + g.x, s.y + g.y, s.z + g.z, s.w + g.w);
      }
      *(float4*)(total + at) = g;
    } else {
      for (uint64_t k = at; k < len; k++) total[k] = first_step ? grad[k] : sum[k] + grad[k];
    }
  }
}

KERNEL(32) accumulate_count(int* held, int adds) {
  if (threadIdx.x == 0) *held = adds ? *held + adds : 0;
}
