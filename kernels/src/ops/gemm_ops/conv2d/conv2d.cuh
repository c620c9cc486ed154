// The kernels of conv2d.cu, conv2d_grouped.cu and conv2d_warpgroup.cu, for any tile.
#pragma once
#include "gemm/gemm.cuh"
#include "gemm/gradient.cuh"
#include "gemm/nearest.cuh"

#define CONV2D(name, tile, blocks) CONV2D_OF(Conv, name, tile, blocks)
#define CONV2D_OF(Conv, name, tile, blocks)                                                  \
  KERNEL_BLOCKS(tile::THREADS, blocks)                                                       \
  name(const real* RESTRICT x, const real* RESTRICT w, const float* RESTRICT scale,          \
       const float* RESTRICT bias, const real* RESTRICT residual, const int* RESTRICT count, \
       real* RESTRICT y, float* RESTRICT partials, Conv conv, int relu,                      \
       unsigned char* RESTRICT signs) {                                                      \
    const ActivationRows epilogue{y, scale, bias, residual, conv.filters, relu, signs};      \
    gemm<tile>(Forward(x, w, count, conv), partials, epilogue);                              \
  }                                                                                          \
  EXPORT(name)

#define CONV2D_MASKED(name, tile, blocks)                                                          \
  KERNEL_BLOCKS(tile::THREADS, blocks)                                                             \
  name(const real* RESTRICT x, const real* RESTRICT w, const float* RESTRICT bias,                 \
       const real* RESTRICT other, const real* RESTRICT mask, const unsigned char* RESTRICT signs, \
       const int* RESTRICT count, real* RESTRICT y, float* RESTRICT partials, Conv conv,           \
       int relu) {                                                                                 \
    const GradientRows epilogue{y, bias, other, mask, signs, conv.filters, relu};                  \
    gemm<tile>(Forward(x, w, count, conv), partials, epilogue);                                    \
  }                                                                                                \
  EXPORT(name)

#define CONV2D_NEAREST(name, tile, blocks)                                                   \
  KERNEL_BLOCKS(tile::THREADS, blocks)                                                       \
  name(const real* RESTRICT x, const real* RESTRICT w, const float* RESTRICT scale,          \
       const float* RESTRICT bias, const real* RESTRICT residual, const int* RESTRICT count, \
       real* RESTRICT y, float* RESTRICT partials, Conv conv, int relu, Nearest nearest) {   \
    const ActivationRows all{y, scale, bias, residual, conv.filters, relu};                  \
    gemm<tile>(Forward(x, w, count, conv), partials, NearestRows{all, nearest});             \
  }                                                                                          \
  EXPORT(name)
