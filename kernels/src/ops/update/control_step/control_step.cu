// Decides a step's parameters on the device: learning rate, clip coefficient, loss scale, and
// whether the update is applied.
//
//   norm     [1]  float    in     norm of all gradients, still times the loss scale
//   finite   [1]  int      in     1 if every gradient is finite
//   control  [1]  Control  out    the decision
//   step     [1]  int      state  steps applied
//   scale    [1]  float    state  loss scale
//   growth   [1]  int      state  clean steps since the scale changed
//   skipped  [1]  int      state  steps skipped
//
// Launch: one thread of one warp.
// Cost: a few loads, some double arithmetic, a few stores; latency-bound.
// Numerics: learning rates in double, rounded once; bit-identical to the CPU except for the last
// place of the cosine.
// Edge cases: a step below zero counts as 0; the scale stays between 1 and the largest float.
#include "control.cuh"

constexpr int MAX_MILESTONES = 16;
constexpr double PI = 3.14159265358979323846;

// A learning-rate schedule. Same layout as the struct that the launch builds.
struct Schedule {
  double base, warmup_factor;
  double gamma;  // of multistep
  double least;  // of cosine: the final rate
  uint64_t warmup_steps;
  uint64_t total_steps;  // of cosine
  uint64_t milestones[MAX_MILESTONES];
  int num_milestones;
  int is_cosine;
};
static_assert(sizeof(Schedule) == 48 + 8 * MAX_MILESTONES + 8, "the launch builds it");

// Settings that are the same at every step. Same layout as the struct that the launch builds.
struct Rules {
  float clip_norm;  // 0: no clipping
  unsigned growth_interval;
  int dynamic;
  float micro_steps;  // number of accumulated micro-steps
  uint64_t first_step;
  int shared_warmup, count_skipped;
};
static_assert(sizeof(Rules) == 32, "the launch builds it");

// Fraction of the base rate during the warm-up, 1 after it.
DEVICE double warmup(const Schedule& s, uint64_t step) {
  if (step >= s.warmup_steps) return 1.0;
  return s.warmup_factor + (1.0 - s.warmup_factor) * (double)step / (double)s.warmup_steps;
}

// gamma to the power of the number of milestones reached.
DEVICE double decay(const Schedule& s, uint64_t step) {
  double product = 1.0;
  for (int i = 0; i < s.num_milestones; i++)
    if (s.milestones[i] <= step) product *= s.gamma;
  return product;
}

DEVICE double learning_rate(const Schedule& s, uint64_t step) {
  if (s.is_cosine && step >= s.warmup_steps) {
    if (step >= s.total_steps) return s.least;
    const uint64_t length = s.total_steps - s.warmup_steps;
    const double part = (double)(step - s.warmup_steps) / (double)length;
    return s.least + (s.base - s.least) * (1.0 + cos(PI * part)) / 2.0;
  }
  return s.base * warmup(s, step) * decay(s, step);
}

// The amount that the warm-up subtracts from the full rate.
DEVICE double warmup_cut(const Schedule& s, uint64_t step) {
  if (step >= s.warmup_steps) return 0.0;
  return s.base * decay(s, step) - learning_rate(s, step);
}

KERNEL(32)
control_step(const float* RESTRICT norm, const int* RESTRICT finite, const Schedule schedule,
             const Rules rules, Control* RESTRICT control, int* RESTRICT step,
             float* RESTRICT scale, int* RESTRICT growth, int* RESTRICT skipped) {
  if (threadIdx.x > 0) return;
  const float used = *scale;
  const int now = *step;
  const float divisor = used * rules.micro_steps;
  float clip = 1.0f;
  if (rules.clip_norm != 0.0f) clip = fminf(rules.clip_norm / (*norm / divisor + 1e-6f), 1.0f);
  const bool apply = *finite != 0;
  const uint64_t at = rules.first_step + (uint64_t)max(now, 0);
  control->lr = (float)learning_rate(schedule, at);
  control->warmup_cut = rules.shared_warmup ? (float)warmup_cut(schedule, at) : 0.0f;
  control->grad_factor = clip / divisor;
  control->applied = apply ? 1.0f : 0.0f;
  control->loss_scale = used;
  if (apply) {
    *step = now + 1;
    const int clean = *growth + 1;
    const bool due = rules.growth_interval > 0 && (unsigned)clean >= rules.growth_interval;
    *growth = rules.dynamic && due ? 0 : clean;
    if (rules.dynamic && due && fabsf(2.0f * used) < INFINITY) *scale = 2.0f * used;
  } else {
    *skipped += 1;
    if (rules.count_skipped) *step = now + 1;
    *growth = 0;
    if (rules.dynamic) *scale = fmaxf(0.5f * used, 1.0f);
  }
}
