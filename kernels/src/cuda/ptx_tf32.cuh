// PTX wrappers for TF32 MMAs; ptx.cuh has all others.
#pragma once
#include "platform.cuh"

// A float rounded to tf32: 10 bits of mantissa, to nearest, ties away from zero.
DEVICE unsigned to_tf32(float value) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(rounded) : "f"(value));
  return rounded;
}

// d += a * b: a is 16x8 row-major, b is 8x8 column-major, d is 16x8 in fp32, in the fragment layout
// of mma.m16n8k8.
DEVICE void multiply_16x8x8_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
