// Both ends of a captured step: copies the inputs from one of two buffers, then switches buffers.
//
// take_inputs:
//   buffer0, buffer1  [count]  uint4  in   the inputs of two batches
//   index             [1]      int    in   0 or 1
//   inputs            [count]  uint4  out  the selected buffer
//
// finish_step:
//   index  [1]  int   state  flipped
//   done   [1]  uint  state  steps finished, in mapped host memory
//
// Launch: take_inputs has a thread per 16 bytes, blocks of 256; finish_step one thread.
// Cost: twice the bytes of a batch, some 30 MB for 12 images, 10 us of a step of 30 ms;
// memory-bound.
// Numerics: copies.
// Edge cases: the count wraps after 2^32 steps.
//
// The fence makes all host-memory writes of the step visible before the count.
#include "platform.cuh"

KERNEL(256)
take_inputs(const uint4* RESTRICT buffer0, const uint4* RESTRICT buffer1, const int* RESTRICT index,
            uint4* RESTRICT inputs, uint64_t count) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) inputs[i] = (*index ? buffer1 : buffer0)[i];
}

KERNEL(32) finish_step(int* index, volatile unsigned* done) {
  if (threadIdx.x > 0) return;
  *index ^= 1;
  __threadfence_system();
  *done = *done + 1;
}
