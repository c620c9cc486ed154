// Kernels that are wrong on purpose, or are launched wrongly: what they reach in device memory.
#include "platform.cuh"

// to[i] = from[i] + 1 for first <= i < end: right, if the launch declares what it reaches.
KERNEL(256)
planted_increment(const float* RESTRICT from, float* RESTRICT to, int first, int end) {
  const int i = first + (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < end) to[i] = from[i] + 1.0f;  // bug: reaches what the launch does not declare
}
EXPORT(planted_increment)

KERNEL(256) planted_fill(float* RESTRICT to, float value, int first, int end) {
  const int i = first + (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < end) to[i] = value;
}
EXPORT(planted_fill)

KERNEL(32) planted_write_input(float* RESTRICT input, float* RESTRICT out) {
  out[threadIdx.x] = input[threadIdx.x];
  if (threadIdx.x == 0) input[0] = 7.0f;
}
EXPORT(planted_write_input)

KERNEL(32) planted_misaligned_vector(const unsigned char* RESTRICT from, int shift, uint4* out) {
  out[threadIdx.x] = *(const uint4*)(from + shift + 16 * threadIdx.x);  // bug: misaligned vector
}
EXPORT(planted_misaligned_vector)

// Every block adds to the same word without an atomic.
KERNEL(32) planted_race_between_blocks(int* RESTRICT count) {
  if (threadIdx.x == 0) *count += 1;  // bug: race between blocks
}
EXPORT(planted_race_between_blocks)
KERNEL(32) planted_count_blocks(int* RESTRICT count) {
  if (threadIdx.x == 0) atomicAdd(count, 1);
}
EXPORT(planted_count_blocks)

// A thread reads what another wrote, though neither ever waits.
KERNEL(64) planted_race_without_barriers(int* RESTRICT out) {
  SHARED(int, value, 1);
  if (threadIdx.x == 0) value[0] = 1;
  if (threadIdx.x == 40) out[0] = value[0];  // bug: race without a barrier in sight
}
EXPORT(planted_race_without_barriers)
