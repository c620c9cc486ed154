// The kernels of conv2d_grad_weight.cu and conv2d_warpgroup.cu, for any tile.
#pragma once
#include "gemm/gemm.cuh"

#define GRAD_WEIGHT(name, tile, padded, blocks) GRAD_WEIGHT_OF(Conv, name, tile, padded, blocks)
#define GRAD_WEIGHT_OF(Conv, name, tile, padded, blocks)                                   \
  KERNEL_BLOCKS(tile::THREADS, blocks)                                                     \
  name(const real* RESTRICT x, const real* RESTRICT g, const float* RESTRICT scale,        \
       const int* RESTRICT count, float* RESTRICT dw, float* RESTRICT partials, Conv conv, \
       Divisor per_image, Divisor per_line) {                                              \
    gemm<tile>(GradWeight(x, g, count, conv, padded, per_image, per_line), partials,       \
               WeightRows{dw, scale, conv.filter_len()});                                  \
  }                                                                                        \
  EXPORT(name)
