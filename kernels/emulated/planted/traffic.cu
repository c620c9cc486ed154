// A right kernel with bank conflicts on purpose, to test how the device counts them.
#include "counted.cuh"
#include "platform.cuh"
#include "ptx.cuh"

// Each lane reaches a place `stride` of its neighbour's: one float, and 16 bytes, of shared memory;
// and the floats of global memory from `shift` on.
KERNEL(32)
planted_traffic(const float* RESTRICT from, float* RESTRICT to, int stride, int shift) {
  SHARED(float4, places, 32 * 8);
  const int lane = threadIdx.x;
  float* const values = (float*)places;
  store_shared(values[lane * stride], 1.0f);
  __syncwarp();
  copy_async_16(&places[lane * stride % 256], from + 4 * lane);
  copy_async_commit();
  copy_async_wait<0>();
  __syncwarp();
  unsigned r[4];
  load_matrix_x4(r, &places[lane * stride % 256]);
  const float4 wide = load_shared(places[lane * stride % 256]);
  store_global(to[lane], load_global(from[lane * stride + shift]) + wide.x + (float)(r[0] & 1));
}
EXPORT(planted_traffic)
