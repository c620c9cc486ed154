// PTX wrappers: cp.async, ldmatrix, mma.sync, prefetch, clock. They take pointers.
#pragma once
#include "platform.cuh"

DEVICE unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// A shared-memory address in bytes.
typedef unsigned SharedAt;
// Opaque to the compiler, which would otherwise recompute the address from the thread's index at
// every use.
DEVICE SharedAt shared_at(const void* p) {
  SharedAt at = shared_address(p);
  asm volatile("mov.u32 %0, %0;" : "+r"(at));
  return at;
}

// Copies 16 bytes from global to shared memory; the last 16 - valid of them are zero-filled and not
// read (valid = 0 reads nothing; `from` is then arbitrary but must be aligned). Both aligned to 16.
// The assembler adds the 128-byte prefetch in some kernels by itself; for consistency all have it.
DEVICE void copy_async_16(SharedAt to, const void* from, int valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
               "r"(valid));
}
// Commits the group of this thread's copies.
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;\n" ::); }
// Waits until at most `pending` of this thread's newest groups are in flight.
template <int pending>
DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(pending));
}

// Prefetches the 128 bytes around `from` into L2.
DEVICE void prefetch(const void* from) { asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from)); }

// Four 8x8 matrices of half: lane l passes the address of row l % 8 of matrix l / 8, and gets
// elements 2 * (l % 4) and the next of row l / 4 of matrix i in r[i].
DEVICE void load_matrix_x4(unsigned (&r)[4], SharedAt row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
// The same, each matrix transposed.
DEVICE void load_matrix_x4_transposed(unsigned (&r)[4], SharedAt row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

// d += a * b: a is 16x16 row-major, b is 16x8 column-major, d is 16x8 in fp32, in the fragment
// layout of mma.m16n8k16.
DEVICE void multiply_16x8x16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Nanoseconds on a clock shared by all multiprocessors; resolution 32 ns to 1 us by GPU.
DEVICE uint64_t global_timer() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;\n" : "=l"(ns)::"memory");
  return ns;
}
