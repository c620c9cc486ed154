// Loss 1 - GIoU of decoded boxes, by group, and its gradient; torchvision's
// generalized_box_iou_loss (eps 1e-7) after BoxCoder.decode.
//
// Launch: the loss is one block of 1,024 threads, the gradient a thread per row in at most 128
// blocks of 256.
// Cost: 56 bytes per positive row, 8 per other row; at 6,144 rows latency-bound.
// Numerics: boxes in fp64, as on the CPU; sums in fp32 in a fixed order; gradients rounded once.
// Edges: no rows or no positive row give 0; boxes without area give a finite loss; dw and dh above
// ln(1000/16) get no gradient; where corners tie each side gets half.
//
// fp64, since areas cancel in the union and the slope is chosen by comparisons; positives are too
// few for its rate to matter.
#include "row_loss.cuh"

REALS(fp16, fp32)

constexpr double EPS = 1e-7;  // keeps the divisions finite for boxes without area
constexpr double MAX_LOG_SCALE = 4.135166556742356;  // ln(1000 / 16): a box may grow 62.5 times

// A box and what its corners depend on.
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

struct Giou {
  float loss;
  float slope[4];  // by the corners of the predicted box
};

// The derivative of max(a, b) by `a`; both share it where they are equal.
DEVICE double share_of_max(double a, double b) { return a > b ? 1.0 : a < b ? 0.0 : 0.5; }

DEVICE Giou giou_loss(const float (&pred)[4], float4 matched) {
  const double p[4] = {pred[0], pred[1], pred[2], pred[3]};
  const double t[4] = {matched.x, matched.y, matched.z, matched.w};
  double meet[2], own[2], other[2], hull[2];  // sides: width and height
  for (int axis = 0; axis < 2; axis++) {
    meet[axis] = fmin(p[axis + 2], t[axis + 2]) - fmax(p[axis], t[axis]);
    hull[axis] = fmax(p[axis + 2], t[axis + 2]) - fmin(p[axis], t[axis]);
    own[axis] = p[axis + 2] - p[axis];
    other[axis] = t[axis + 2] - t[axis];
  }
  const bool meets = meet[0] > 0.0 && meet[1] > 0.0;
  const double shared = meets ? meet[0] * meet[1] : 0.0;
  const double united = own[0] * own[1] + other[0] * other[1] - shared;
  const double around = hull[0] * hull[1];
  const double iou = shared / (united + EPS), rest = (around - united) / (around + EPS);
  Giou result;
  result.loss = (float)(1.0 - (iou - rest));
  for (int i = 0; i < 4; i++) {
    const int axis = i % 2, across = 1 - axis;
    const double sign = i < 2 ? -1.0 : 1.0;
    // The corner moves the side that it bounds: of the box, of the part shared, of the hull.
    const double inner = i < 2 ? share_of_max(p[i], t[i]) : share_of_max(t[i], p[i]);
    const double outer = 1.0 - inner;
    const double d_shared = meets ? sign * inner * meet[across] : 0.0;
    const double d_united = sign * own[across] - d_shared;
    const double d_around = sign * outer * hull[across];
    const double d_iou = (d_shared - iou * d_united) / (united + EPS);
    const double d_rest = (d_around - d_united - rest * d_around) / (around + EPS);
    result.slope[i] = (float)(d_rest - d_iou);
  }
  return result;
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
