// The variants' door to PTX, beside ptx.cuh: copies that pass the caches in other ways, and shared
// memory by addresses that are made once.
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

// A place in shared memory, in bytes.
typedef unsigned SharedAt;
// Opaque to the compiler, which would otherwise make the address anew, from the thread's index,
// wherever it is used.
DEVICE SharedAt shared_at(const void* p) {
  SharedAt at = shared_address(p);
  asm volatile("mov.u32 %0, %0;" : "+r"(at));
  return at;
}

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

// Four matrices, as load_matrix_x4 of ptx.cuh.
DEVICE void load_matrix(unsigned (&r)[4], SharedAt row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

#else

typedef unsigned char* SharedAt;
inline SharedAt shared_at(const void* p) { return (SharedAt)p; }
template <Cache>
inline void copy_async(void* to, const void* from, int valid) {
  copy_async_16(to, from, valid);
}
inline void load_matrix(unsigned (&r)[4], SharedAt row) { load_matrix_x4(r, row); }

#endif

}  // namespace probe
