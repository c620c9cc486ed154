// Kernels that are wrong on purpose: shared memory without a barrier, past its end, or misaligned.
#include "platform.cuh"
#include "ptx.cuh"

// Sum of 256 values. Without the barriers of the tree, or with them.
template <bool barriers>
DEVICE void tree_sum(const float* in, float* out) {
  SHARED(float, part, 256);
  const unsigned t = threadIdx.x;
  part[t] = in[blockIdx.x * 256 + t];
  __syncthreads();
  for (unsigned k = 128; k > 0; k /= 2) {
    if (t < k) part[t] += part[t + k];  // bug: missing barrier
    if (barriers) __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}
KERNEL(256) planted_missing_barrier(const float* RESTRICT in, float* RESTRICT out) {
  tree_sum<false>(in, out);
}
EXPORT(planted_missing_barrier)
KERNEL(256) planted_tree_sum(const float* RESTRICT in, float* RESTRICT out) {
  tree_sum<true>(in, out);
}
EXPORT(planted_tree_sum)

KERNEL(256) planted_shared_write_past_end(float* RESTRICT out, int past) {
  SHARED(float, first, 64);  // bug: the array that is too short
  SHARED(float, second, 64);
  second[threadIdx.x % 64] = 2.0f;
  first[(threadIdx.x % 64) + past] = 1.0f;  // bug: write past a shared array
  __syncthreads();
  out[threadIdx.x] = first[threadIdx.x % 64] + second[threadIdx.x % 64];
}
EXPORT(planted_shared_write_past_end)

KERNEL(256) planted_shared_read_past_end(float* RESTRICT out, int past) {
  SHARED(float, values, 64);
  values[threadIdx.x % 64] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = values[(threadIdx.x % 64) + past];  // bug: read past a shared array
}
EXPORT(planted_shared_read_past_end)

KERNEL(256) planted_dynamic_write_past_end(float* RESTRICT out, int n) {
  DYNAMIC_SHARED(memory);
  float* const values = (float*)memory;
  for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = values[0];
}
EXPORT(planted_dynamic_write_past_end)

KERNEL(256) planted_shared_unwritten(float* RESTRICT out) {
  SHARED(float, values, 256);
  if (threadIdx.x != 3) values[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}
EXPORT(planted_shared_unwritten)

KERNEL(256) planted_too_much_shared(float* RESTRICT out) {
  SHARED(float, values, 64 << 10);  // bug: 256 KiB of shared memory
  out[threadIdx.x] = values[threadIdx.x];
}
EXPORT(planted_too_much_shared)

// Copies 16 bytes a thread through shared memory, `shift` bytes off.
enum class Wait { BEFORE_THE_READ, AFTER_IT, NEVER };
template <Wait wait>
DEVICE void staged_copy(const float* from, float* to, int shift_from, int shift_to) {
  SHARED(float4, stage, 65);
  const unsigned t = threadIdx.x;
  copy_async_16((char*)&stage[t] + shift_to,  // bug: asynchronous copy
                (const char*)(from + 4 * t) + shift_from);
  copy_async_commit();
  if (wait == Wait::BEFORE_THE_READ) copy_async_wait<0>();
  __syncthreads();
  ((float4*)to)[t] = stage[t];
  if (wait == Wait::AFTER_IT) copy_async_wait<0>();
}
KERNEL(64)
planted_staged_copy(const float* RESTRICT from, float* RESTRICT to, int shift_from, int shift_to) {
  staged_copy<Wait::BEFORE_THE_READ>(from, to, shift_from, shift_to);
}
EXPORT(planted_staged_copy)
KERNEL(64) planted_late_wait(const float* RESTRICT from, float* RESTRICT to) {
  staged_copy<Wait::AFTER_IT>(from, to, 0, 0);
}
EXPORT(planted_late_wait)
KERNEL(64) planted_forgotten_wait(const float* RESTRICT from, float* RESTRICT to) {
  staged_copy<Wait::NEVER>(from, to, 0, 0);
}
EXPORT(planted_forgotten_wait)

// Sums of 16 bytes a thread over steps, each read from the place that another thread has filled.
template <bool early>
DEVICE void ring_of_one(const float* from, float* to, int steps) {
  SHARED(float4, stage, 64);
  const unsigned t = threadIdx.x;
  const auto fill = [&](int step) {
    if (step < steps) copy_async_16(&stage[t], from + 4 * (64 * step + t));  // bug: early fill
    copy_async_commit();
  };
  float sum = 0;
  fill(0);
  for (int step = 0; step < steps; step++) {
    copy_async_wait<0>();
    __syncthreads();
    if (early) fill(step + 1);
    sum += stage[63 - t].x;
    __syncthreads();
    if (!early) fill(step + 1);
  }
  copy_async_wait<0>();
  to[t] = sum;
}
KERNEL(64) planted_ring_of_one(const float* RESTRICT from, float* RESTRICT to, int steps) {
  ring_of_one<false>(from, to, steps);
}
EXPORT(planted_ring_of_one)
KERNEL(64) planted_early_fill(const float* RESTRICT from, float* RESTRICT to, int steps) {
  ring_of_one<true>(from, to, steps);
}
EXPORT(planted_early_fill)

KERNEL(32) planted_misaligned_ldmatrix(unsigned* RESTRICT out, int shift) {
  SHARED_2D(half, rows, 33, 8);
  for (int i = 0; i < 8; i++) rows[threadIdx.x][i] = __float2half((float)i);
  __syncthreads();
  unsigned r[4];
  load_matrix_x4(r, (const char*)rows[threadIdx.x] + shift);  // bug: misaligned ldmatrix
  out[threadIdx.x] = r[0];
}
EXPORT(planted_misaligned_ldmatrix)
