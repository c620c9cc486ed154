// Loss 1 - GIoU of two boxes, and its derivatives; the same as losses/giou.rs, in fp64.
//
// Boxes are (x1, y1, x2, y2).
#pragma once
#include "platform.cuh"

constexpr double EPS = 1e-7;  // keeps the divisions finite for zero-area boxes

struct Giou {
  float loss;
  float slope[4];  // with respect to the corners of the predicted box
};

// The derivative of max(a, b) with respect to `a`; 0.5 each if they are equal.
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
    // The coordinate moves a side of the box by 1, of the intersection by `inner`, of the hull by
    // `outer`.
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
