// The variants' door to PTX, beside ptx.cuh: copies that pass the caches in other ways.
#pragma once
#include "gemm/epilogue.cuh"
#include "gemm/loaders.cuh"

namespace probe {

// How a copy passes the caches.
enum class Cache {
  L2,        // .cg: past the L1 cache, as today
  L1,        // .ca: through it, so that what the next tap asks for is near
  L1_LINES,  // the same, and a miss brings 128 bytes into L2: two lines of 32 channels
};

#ifdef __CUDACC__

// Copies 16 bytes, as copy_async_16 of ptx.cuh.
template <Cache CACHE>
DEVICE void copy_async(SharedAt to, const void* from, int valid) {
  if constexpr (CACHE == Cache::L2)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
                 "r"(valid));
  if constexpr (CACHE == Cache::L1)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
                 "r"(valid));
  if constexpr (CACHE == Cache::L1_LINES)
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
                 "r"(valid));
}
template <Cache CACHE>
DEVICE void copy_async(void* to, const void* from, int valid) {
  copy_async<CACHE>(shared_address(to), from, valid);
}

#else

template <Cache>
inline void copy_async(void* to, const void* from, int valid) {
  copy_async_16(to, from, valid);
}

#endif

}  // namespace probe
