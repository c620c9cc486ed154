// Binary cross-entropy of logits, averaged over each group of images, and its gradient; torch's
// binary_cross_entropy_with_logits over the rows whose label is not -1.
//
// Launch: the loss is one block of 1,024 threads, the gradient a thread per row in at most 128 such
// blocks.
// Cost: 10 or 12 bytes per row; at 3,072 rows (12 images) latency-bound, so one block beats a
// second launch.
// Numerics: fp32, sums in a fixed order, gradients rounded once.
// Edge cases: without counted rows the loss is 0; an ignored row may have any values.
#include "row_loss.cuh"

REALS(fp16, fp32)

struct Bce {
  static constexpr int COLUMNS = 1;
  static constexpr bool POSITIVE = false;
  const real* logits;

  DEVICE Element row(const LossRows& in, int row) const {
    return bce_with_logits(to_float(logits[row]), in.labels[row] > 0 ? 1.0f : 0.0f);
  }
  DEVICE float loss(const LossRows& in, int at) const { return row(in, at).loss; }
  DEVICE void slopes(const LossRows& in, int at, float (&slope)[1]) const {
    slope[0] = row(in, at).slope;
  }
};

ROW_LOSS(bce_loss, Bce, 1024)
