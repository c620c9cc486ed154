// Question: what does wgmma reach with today's gather: cp.async into the 128-byte swizzle, no warp
// of its own for the copies, a tile of 128x256, one block a multiprocessor? Prediction: 409 TFLOP/s
// on H200 for 3x3 of 256 channels (CuTe's tutorial of this structure); with a warp for the copies
// 500 to 550, with TMA 590. Nothing spins: no wait but on copies, products and one barrier of the
// block. sm_90a alone; assembled, not verified on hardware.
#include "platform.cuh"

ARCHITECTURES(compute_90a)

#ifdef __CUDACC__
#include "wgmma_loop.cuh"

PROBE_WGMMA(probe_wgmma_n256, 256, 4, 1)
#endif
