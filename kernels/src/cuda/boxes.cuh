// Box arithmetic, function by function as in boxes/geometry.rs and boxes/coder.rs and in the same
// order of operations: with contraction off, decisions at a threshold equal the CPU's.
//
// A box is (x1, y1, x2, y2) in pixels, f32, 16-byte aligned as in a tensor [.., 4]. `plus_one` is 1
// for inclusive boxes, else 0. fminf and fmaxf ignore a NaN operand, as in Rust.
#pragma once
#include "platform.cuh"

typedef float4 Box;

// Upper limit of a delta's log ratio of sides: ln(1000 / 16).
constexpr float MAX_LOG_RATIO = 4.1351665f;

// Height and width of an image in pixels, as a row of a tensor [N, 2].
struct ImageSize {
  int height, width;
};

// Weights of the four deltas.
struct BoxWeights {
  float x, y, w, h;
};

DEVICE float box_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

DEVICE float box_width(Box b, int plus_one) { return b.z - b.x + (float)plus_one; }
DEVICE float box_height(Box b, int plus_one) { return b.w - b.y + (float)plus_one; }
DEVICE float box_area(Box b, int plus_one) {
  return box_width(b, plus_one) * box_height(b, plus_one);
}

// Intersection area of two boxes.
DEVICE float box_shared(Box a, Box b, int plus_one) {
  const float one = (float)plus_one;
  const float w = fmaxf(fminf(a.z, b.z) - fmaxf(a.x, b.x) + one, 0.0f);
  const float h = fmaxf(fminf(a.w, b.w) - fmaxf(a.y, b.y) + one, 0.0f);
  return w * h;
}

// Intersection over union of boxes whose areas are known; 0 where the union has no area.
DEVICE float box_iou(Box a, float a_area, Box b, float b_area, int plus_one) {
  const float shared = box_shared(a, b, plus_one);
  const float united = a_area + b_area - shared;
  return united > 0.0f ? shared / united : 0.0f;
}
DEVICE float box_iou(Box a, Box b, int plus_one) {
  return box_iou(a, box_area(a, plus_one), b, box_area(b, plus_one), plus_one);
}

// box_iou(..) > threshold, mostly without the division: two multiplications and a division have
// relative errors of at most 2^-24 each, so a relative difference of 1e-6 is decisive. Subnormal
// results have larger errors.
DEVICE bool box_iou_above(Box a, float a_area, Box b, float b_area, int plus_one, float threshold) {
  const float shared = box_shared(a, b, plus_one);
  const float united = a_area + b_area - shared, bound = threshold * united;
  if (bound > 1e-30f && shared < bound * 0.999999f) return false;
  if (bound > 1e-30f && shared > bound * 1.000001f) return true;
  return (united > 0.0f ? shared / united : 0.0f) > threshold;
}

// IoU minus the fraction of the enclosing box that neither covers; 0 for two identical points.
DEVICE float box_giou(Box a, Box b) {
  const float shared = box_shared(a, b, 0);
  const float united = box_area(a, 0) + box_area(b, 0) - shared;
  const float iou = united > 0.0f ? shared / united : 0.0f;
  const float w = fmaxf(fmaxf(a.z, b.z) - fminf(a.x, b.x), 0.0f);
  const float h = fmaxf(fmaxf(a.w, b.w) - fminf(a.y, b.y), 0.0f);
  const float hull = w * h;
  return hull > 0.0f ? iou - (hull - united) / hull : iou;
}

// Clips the corners to the image: 0..=width and 0..=height, for inclusive boxes one less.
DEVICE Box box_clip(Box b, ImageSize size, int plus_one) {
  const float right = (float)size.width - (float)plus_one;
  const float bottom = (float)size.height - (float)plus_one;
  return make_float4(fmaxf(fminf(b.x, right), 0.0f), fmaxf(fminf(b.y, bottom), 0.0f),
                     fmaxf(fminf(b.z, right), 0.0f), fmaxf(fminf(b.w, bottom), 0.0f));
}

// True if a side is shorter than min_size, or NaN.
DEVICE bool box_is_small(Box b, float min_size, int plus_one) {
  return !(box_width(b, plus_one) >= min_size && box_height(b, plus_one) >= min_size);
}

// True if the box is inside the image.
DEVICE bool box_inside(Box b, ImageSize size) {
  return b.x >= 0.0f && b.y >= 0.0f && b.z < (float)size.width && b.w < (float)size.height;
}

// Deltas (dx, dy, dw, dh) that turn `anchor` into `target`, times the weights. Infinite or NaN
// where a side is not positive.
DEVICE float4 box_encode(Box anchor, Box target, BoxWeights weights, int plus_one) {
  const float aw = box_width(anchor, plus_one), ah = box_height(anchor, plus_one);
  const float tw = box_width(target, plus_one), th = box_height(target, plus_one);
  const float ax = anchor.x + 0.5f * aw, ay = anchor.y + 0.5f * ah;
  const float tx = target.x + 0.5f * tw, ty = target.y + 0.5f * th;
  return make_float4(weights.x * (tx - ax) / aw, weights.y * (ty - ay) / ah,
                     weights.w * logf(tw / aw), weights.h * logf(th / ah));
}

// Four deltas of a map, in one load.
DEVICE float4 load_deltas(const half* p) {
  const uint2 bits = *(const uint2*)p;
  const float2 xy = __half22float2(*(const half2*)&bits.x);
  const float2 wh = __half22float2(*(const half2*)&bits.y);
  return make_float4(xy.x, xy.y, wh.x, wh.y);
}
DEVICE float4 load_deltas(const float* p) { return *(const float4*)p; }

// Applies `deltas` to `anchor`; dw and dh are clamped from above to MAX_LOG_RATIO.
DEVICE Box box_decode(Box anchor, float4 deltas, BoxWeights weights, int plus_one) {
  const float aw = box_width(anchor, plus_one), ah = box_height(anchor, plus_one);
  const float ax = anchor.x + 0.5f * aw, ay = anchor.y + 0.5f * ah;
  const float dw = fminf(deltas.z / weights.w, MAX_LOG_RATIO);
  const float dh = fminf(deltas.w / weights.h, MAX_LOG_RATIO);
  const float x = deltas.x / weights.x * aw + ax, y = deltas.y / weights.y * ah + ay;
  const float half_w = 0.5f * (expf(dw) * aw), half_h = 0.5f * (expf(dh) * ah);
  const float one = (float)plus_one;
  return make_float4(x - half_w, y - half_h, x + half_w - one, y + half_h - one);
}
