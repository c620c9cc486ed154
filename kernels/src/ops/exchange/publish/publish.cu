// Writes small tensors as a row of a ring in host memory, which the host polls without
// synchronizing with the device.
//
//   values  [len]           int/float  in     one of up to 64 tensors
//   ring    [rows, width]   float      state  one row: sequence number, all values, zeros
//   step    [1]             int        state  rows written
//
// Launch: one block of 256 threads.
// Cost: width words over PCIe; latency-bound.
// Numerics: int to float rounds to nearest.
// Edge cases: the row of a step is step % rows, with step as unsigned.
//
// The sequence number signals to the host that the row is complete, so it is written after all
// else, after a system-wide fence: the block's barrier orders its threads' writes before the fence,
// and the fence orders them before the number, for the host too.
#include "platform.cuh"

constexpr int CAPACITY = 64;

// The inputs. Same layout as the struct that the launch builds.
struct Values {
  const void* values[CAPACITY];
  int len[CAPACITY];
  int is_int[CAPACITY];
  int count;
};
static_assert(sizeof(Values) == 16 * CAPACITY + 8, "the launch builds it");

KERNEL(256) publish(const Values in, float* ring, int rows, int width, int* step) {
  const unsigned now = (unsigned)*step;
  float* const row = ring + (uint64_t)(now % rows) * width;
  int first = 1;
  for (int i = 0; i < in.count; i++) {
    const int len = in.len[i];
    for (int k = threadIdx.x; k < len; k += blockDim.x)
      row[first + k] =
          in.is_int[i] ? (float)((const int*)in.values[i])[k] : ((const float*)in.values[i])[k];
    first += len;
  }
  for (int k = first + threadIdx.x; k < width; k += blockDim.x) row[k] = 0.0f;
  __syncthreads();
  if (threadIdx.x > 0) return;
  *step = (int)(now + 1);
  __threadfence_system();
  // Stores the bit pattern, without conversion; volatile, so that it is one store after the fence.
  *(volatile unsigned*)row = now + 1;
}
