// Question: as wgmma_n256.cu, with a tile of 128x128 and three stages, so that two blocks share a
// multiprocessor and the one multiplies while the other fills? Prediction: 390 TFLOP/s on H100 for
// 3x3 of 256 channels, and better than n256 where tiles are few. sm_90a alone; assembled, not
// verified on hardware.
#include "platform.cuh"

ARCHITECTURES(compute_90a)

#ifdef __CUDACC__
#include "wgmma_loop.cuh"

PROBE_WGMMA(probe_wgmma_n128, 128, 3, 2)
#endif
