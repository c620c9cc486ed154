// `real`: the element type of activations, their gradients and the weights that kernels read; half,
// or float. Arithmetic is in fp32 either way.
#pragma once
#include "platform.cuh"

// REALS(fp16, fp32): the types of `real` in a source, which is compiled once for each. fp16: half.
// fp32: float, with REAL_IS_FLOAT defined. tf32: also float, with PRODUCTS_IN_TF32 defined as well,
// for GEMM sources. Kernel names of the second and third have the precision in place of f16, or
// appended. Only the compile tools read it; a source without it is compiled for fp16.
#define REALS(...)

#ifdef REAL_IS_FLOAT

typedef float real;
struct alignas(16) Real4 {  // four contiguous values
  float of[4];
};
struct alignas(16) Real8 {
  float of[8];
};
#define to_float(value) (value)
#define to_real(value) (value)
#define real_of(value, half_bits) (value)
#define first_word(eight) (*(unsigned*)(eight).of)

#else

typedef half real;
typedef uint2 Real4;
typedef uint4 Real8;
// Macros, as functions would change the compiler's machine code.
#define to_float(value) __half2float(value)
#define to_real(value) __float2half_rn(value)
// A constant, which is not rounded: `half_bits` is the half representation of `value`.
#define real_of(value, half_bits) __ushort_as_half(half_bits)
// 32 bits of a Real8, as an lvalue.
#define first_word(eight) ((eight).x)

#endif
