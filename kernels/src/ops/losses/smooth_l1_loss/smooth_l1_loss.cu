// Smooth L1 loss of box deltas, and its gradient: for each group of images, the sum over positive
// rows divided by the number of sampled rows.
//
// Launch: the loss is one block of 1,024 threads, the gradient a thread per row in at most 128 such
// blocks.
// Cost: 32 or 40 bytes per positive row, 8 or 16 per other row; at 6,144 rows (12 images)
// latency-bound.
// Numerics: fp32, sums in a fixed order, gradients rounded once.
// Edge cases: without positive rows the loss is 0; beta 0 is L1; a row that is not positive may
// have any values.
//
// Matches the box losses of torchvision and maskrcnn-benchmark.
#include "row_loss.cuh"

REALS(fp16, fp32)

struct SmoothL1 {
  static constexpr int COLUMNS = 4;
  static constexpr bool POSITIVE = true;
  const real* pred;
  const float* target;
  float beta;

  DEVICE void row(int row, Element (&of)[4]) const {
    const Real4 packed = *(const Real4*)(pred + 4 * (uint64_t)row);
    const float4 wanted = *(const float4*)(target + 4 * (uint64_t)row);
    const real* got = (const real*)&packed;
    of[0] = smooth_l1(to_float(got[0]) - wanted.x, beta);
    of[1] = smooth_l1(to_float(got[1]) - wanted.y, beta);
    of[2] = smooth_l1(to_float(got[2]) - wanted.z, beta);
    of[3] = smooth_l1(to_float(got[3]) - wanted.w, beta);
  }
  DEVICE float loss(const LossRows&, int at) const {
    Element of[4];
    row(at, of);
    return of[0].loss + of[1].loss + of[2].loss + of[3].loss;
  }
  DEVICE void slopes(const LossRows&, int at, float (&slope)[4]) const {
    Element of[4];
    row(at, of);
    for (int i = 0; i < 4; i++) slope[i] = of[i].slope;
  }
};

ROW_LOSS(smooth_l1_loss, SmoothL1, 1024)
