// Loss 1 - GIoU of decoded boxes, normalised by group of images, and its gradient; torchvision's
// generalized_box_iou_loss (eps 1e-7) after BoxCoder.decode.
//
// Launch: the loss is one block of 1,024 threads, the gradient a thread per row in at most 128
// blocks of 256.
// Cost: 56 bytes per positive row, 8 per other row; at 6,144 rows latency-bound.
// Numerics: boxes in fp64, as on the CPU; sums in fp32 in a fixed order; gradients rounded once.
// Edge cases: without positive rows the loss is 0; zero-area boxes give a finite loss; dw and dh
// above ln(1000/16) get no gradient; where corners tie each side gets half.
//
// fp64, since areas cancel in the union and the derivative depends on comparisons; there are too
// few positives for the fp64 rate to matter.
#include "giou.cuh"
#include "row_loss.cuh"

REALS(fp16, fp32)

constexpr double MAX_LOG_SCALE = 4.135166556742356;  // ln(1000 / 16): a box may grow 62.5 times

// A decoded box and the values its corners depend on.
struct Decoded {
  float corner[4];
  double half[2];  // half of its width and height
  double size[2];  // of the RoI
  bool free[2];    // dw and dh are below their clamp
};

DEVICE Decoded decode(const real* deltas, const float4* rois, const float (&weights)[4], int row) {
  const Real4 packed = *(const Real4*)(deltas + 4 * (int64_t)row);
  const real* delta = (const real*)&packed;
  const float4 roi = rois[row];
  const double low[2] = {roi.x, roi.y}, high[2] = {roi.z, roi.w};
  Decoded box;
  for (int axis = 0; axis < 2; axis++) {
    const double shift = (double)to_float(delta[axis]) / (double)weights[axis];
    const double grow = (double)to_float(delta[axis + 2]) / (double)weights[axis + 2];
    const double size = high[axis] - low[axis];
    const double centre = low[axis] + 0.5 * size + shift * size;
    box.size[axis] = size;
    box.half[axis] = 0.5 * exp(fmin(grow, MAX_LOG_SCALE)) * size;
    box.free[axis] = grow <= MAX_LOG_SCALE;
    box.corner[axis] = (float)(centre - box.half[axis]);
    box.corner[axis + 2] = (float)(centre + box.half[axis]);
  }
  return box;
}

struct GiouLoss {
  static constexpr int COLUMNS = 4;
  static constexpr bool POSITIVE = true;
  const real* deltas;
  const float4* rois;
  const float4* matched_boxes;
  float weights[4];

  DEVICE float loss(const LossRows&, int row) const {
    return giou_loss(decode(deltas, rois, weights, row).corner, matched_boxes[row]).loss;
  }
  DEVICE void slopes(const LossRows&, int row, float (&by_delta)[4]) const {
    const Decoded box = decode(deltas, rois, weights, row);
    const Giou giou = giou_loss(box.corner, matched_boxes[row]);
    for (int i = 0; i < 4; i++) {
      const int axis = i % 2;
      const double low = giou.slope[axis], high = giou.slope[axis + 2];
      const double slope = i < 2            ? (low + high) * box.size[axis]
                           : box.free[axis] ? (high - low) * box.half[axis]
                                            : 0.0;
      by_delta[i] = (float)(slope / (double)weights[i]);
    }
  }
};

ROW_LOSS(giou_loss, GiouLoss, 256)
