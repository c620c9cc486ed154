// The first header of every kernel source: types, and how kernels and their memory are declared.
//
// Inline PTX is only in ptx.cuh.
#pragma once

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
#include <cuda_fp16.h>

#define DEVICE __device__ __forceinline__
// Kernel of up to `threads` threads per block: KERNEL(256) name(const half* x, ...) { ... }
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
// The same, with `blocks` blocks per multiprocessor as the compiler's target, which limits the
// registers per thread.
#define KERNEL_BLOCKS(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
// T name[count], one per block.
#define SHARED(T, name, count) __shared__ T name[count]
// T name[rows][columns], one per block.
#define SHARED_2D(T, name, rows, columns) __shared__ T name[rows][columns]
// unsigned char name[], with the launch's dynamic size, aligned to 128; for Hopper to 1,024.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#else
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#endif
// EXPORT(name): nothing. Without it NVRTC 12.2 orders branches of some GEMM kernels differently,
// and only the current machine code was verified on an H100; remove it when those kernels change.
// The length of a source with its comments has the same effect (tools/compile/src/child.rs).
#define EXPORT(kernel)

// ARCHITECTURES(compute_80, compute_90a): the targets of a source, one PTX file for each. Only the
// compile tool reads it; the default is compute_80.
#define ARCHITECTURES(...)

// Pointers that do not alias; kernels take all tensors this way.
#define RESTRICT __restrict__

DEVICE int ceil_div(int a, int b) { return (a + b - 1) / b; }
