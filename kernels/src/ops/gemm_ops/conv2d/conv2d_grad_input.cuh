// The kernels of conv2d_grad_input.cu and conv2d_warpgroup.cu, for any tile.
#pragma once
#include "gemm/gemm.cuh"
#include "gemm/gradient.cuh"

#define GRAD_INPUT(name, tile, padded, blocks) GRAD_INPUT_OF(Conv, name, tile, padded, blocks)
#define GRAD_INPUT_OF(Conv, name, tile, padded, blocks)                                            \
  KERNEL_BLOCKS(tile::THREADS, blocks)                                                             \
  name(const real* RESTRICT g, const real* RESTRICT w, const float* RESTRICT bias,                 \
       const real* RESTRICT other, const real* RESTRICT mask, const unsigned char* RESTRICT signs, \
       const int* RESTRICT count, real* RESTRICT dx, float* RESTRICT partials, Conv conv,          \
       int relu) {                                                                                 \
    const GradientRows epilogue{dx, bias, other, mask, signs, conv.channels, relu};                \
    gemm<tile>(GradInput(g, w, count, conv, padded), partials, epilogue);                          \
  }
