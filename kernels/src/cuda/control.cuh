// What control_step decides for a step, for the kernels that act on it.
#pragma once
#include "platform.cuh"

// A tensor of four floats in memory. Equal to `Control` of control_step/control.rs.
struct Control {
  float lr;           // learning rate of this step
  float grad_factor;  // what gradients are multiplied with: clip / (loss scale * micro-steps)
  float applied;      // 1 to apply the update, 0 to skip it
  float loss_scale;   // that the gradients were computed with
};
static_assert(sizeof(Control) == 16, "four floats");
