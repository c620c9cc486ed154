// Mask probabilities of the predicted class, which evaluation pastes into the image; torchvision's
// maskrcnn_inference.
//
//   logits  [M, pixels]  real        in   mask logits of the predicted class
//   labels  [M]          int         in   predicted class
//   count   [1]          int         in   rows in use
//   probs   [M, pixels]  float       out  0 past the count and for labels below 1
//
// Launch: a thread per pixel, blocks of 256.
// Cost: 2 or 4 bytes read and 4 written per pixel of a row in use; memory-bound.
// Numerics: sigmoid in fp32, without overflow.
// Edge cases: rows without a mask are not read.
#include "real.cuh"

REALS(fp16, fp32)

// Pixels are numbered over all rows; each row has `pixels`.
KERNEL(256)
mask_probabilities_f16(const real* RESTRICT logits, const int* RESTRICT labels,
                       const int* RESTRICT count, float* RESTRICT probs, uint64_t len, int pixels) {
  const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= len) return;
  const int row = (int)(i / pixels);
  const int label = row < *count ? labels[row] : 0;
  float prob = 0.0f;
  if (label > 0) {
    const float x = to_float(logits[i]);
    const float e = expf(-fabsf(x));
    prob = (x >= 0.0f ? 1.0f : e) / (1.0f + e);
  }
  probs[i] = prob;
}
