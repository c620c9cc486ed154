// The decisions of control_step for a step, for the kernels that apply them.
#pragma once
#include "platform.cuh"

// A tensor of five floats in memory. Same layout as `Control` of control_step/control.rs.
struct Control {
  float lr;           // learning rate of this step
  float grad_factor;  // multiplies the gradients: clip / (loss scale * micro-steps)
  float applied;      // 1 to apply the update, 0 to skip it
  float loss_scale;   // of the gradients
  float warmup_cut;   // what a warm-up subtracts from the rate of every parameter, or 0

  // Learning rate of parameters whose full rate is `factor` times the base rate.
  DEVICE float rate(float factor) const { return lr * factor + warmup_cut * (factor - 1.0f); }
};
static_assert(sizeof(Control) == 20, "five floats");
