// Question: do descriptors mean what they are taken to mean? d = a * b with a the identity, for
// operands whose images in shared memory and whose descriptors come from the host (identity.rs), so
// that one kernel serves every candidate. Prediction: identity.rs says which hold. One warpgroup,
// one block; nothing spins. sm_90a alone; assembled, not verified on hardware.
//
// Tensors: images of a [64, k] and b [128, k] half, in any layout (in) -> d [64, 128] float
// (overwritten). Launch: 128 threads; 128 KiB of dynamic shared memory.
#include "platform.cuh"

ARCHITECTURES(compute_90a)

#ifdef __CUDACC__
#include "wgmma.cuh"

namespace probe {
template <int TRANSPOSE_A, int TRANSPOSE_B>
DEVICE void identity(const uint4* a_image, int a_chunks, const uint4* b_image, int b_chunks,
                     uint64_t a_descriptor, uint64_t b_descriptor, int a_advance, int b_advance,
                     int steps, float* d) {
  DYNAMIC_SHARED(memory);
  unsigned char* const a = memory + (-shared_address(memory) & 1023);
  unsigned char* const b = a + (a_chunks * 16 + 1023 & ~1023);
  for (int i = threadIdx.x; i < a_chunks; i += 128) ((uint4*)a)[i] = a_image[i];
  for (int i = threadIdx.x; i < b_chunks; i += 128) ((uint4*)b)[i] = b_image[i];
  fence_for_products();
  __syncthreads();

  float sums[64];
#pragma unroll
  for (int i = 0; i < 64; i++) sums[i] = 0.0f;
  uint64_t left = descriptor_at(a_descriptor, a), right = descriptor_at(b_descriptor, b);
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    products_begin();
    multiply_64x128x16<TRANSPOSE_A, TRANSPOSE_B>(sums, left, right);
    products_commit();
    products_wait<0>();
    left += a_advance >> 4, right += b_advance >> 4;
  }
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < 16; j++) {
    float* to = d + row * 128 + j * 8 + lane % 4 * 2;
    to[0] = sums[4 * j], to[1] = sums[4 * j + 1];
    to[8 * 128] = sums[4 * j + 2], to[8 * 128 + 1] = sums[4 * j + 3];
  }
}
}  // namespace probe

#define IDENTITY(name, transpose_a, transpose_b)                                                  \
  KERNEL(128)                                                                                     \
  name(const uint4* RESTRICT a_image, int a_chunks, const uint4* RESTRICT b_image, int b_chunks,  \
       uint64_t a_descriptor, uint64_t b_descriptor, int a_advance, int b_advance, int steps,     \
       float* RESTRICT d) {                                                                       \
    probe::identity<transpose_a, transpose_b>(a_image, a_chunks, b_image, b_chunks, a_descriptor, \
                                              b_descriptor, a_advance, b_advance, steps, d);      \
  }                                                                                               \
  EXPORT(name)

IDENTITY(probe_wgmma_identity, 0, 0)
IDENTITY(probe_wgmma_identity_b, 0, 1)
IDENTITY(probe_wgmma_identity_ab, 1, 1)
#endif
