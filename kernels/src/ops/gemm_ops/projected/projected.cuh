// The kernels of projected.cu and projected_warpgroup.cu, for any tile.
#pragma once
#include "gemm/gemm.cuh"

#define PROJECTED(name, tile, blocks)                                                        \
  KERNEL_BLOCKS(tile::THREADS, blocks)                                                       \
  name(const half* RESTRICT x, const half* RESTRICT w, const half* RESTRICT from,            \
       const half* RESTRICT w_from, const float* RESTRICT bias, half* RESTRICT y, Conv conv, \
       Conv projection, int relu, unsigned char* RESTRICT signs) {                           \
    const SumOf<Forward<Conv>, Forward<Conv>> pass({from, w_from, nullptr, projection},      \
                                                   {x, w, nullptr, conv});                   \
    const ActivationRows epilogue{y, nullptr, bias, nullptr, conv.filters, relu, signs};     \
    gemm<tile>(pass, nullptr, epilogue);                                                     \
  }
