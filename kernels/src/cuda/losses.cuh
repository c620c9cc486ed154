// Device code shared by the losses: the weight of a row in its group's mean, and the losses of one
// element. The same as kernels/src/losses, in fp32.
//
// A row of group g weighs 1 / (count_g * groups), where count_g is the number of counted rows of
// the group, or a fixed number for each image of the group. Each block counts all rows, by integer
// atomics in shared memory, whose order does not affect the result: this saves a separate launch.
// The bytes read for it (8 per row and block) come from L2; launches have at most one block per
// multiprocessor, which limits them.
#pragma once
#include "real.cuh"
#include "reduce.cuh"

// Groups counted at a time. No current batch has more; a larger one takes several rounds.
constexpr int WINDOW = 1024;
// Rows of a thread whose labels are loaded before any is counted: hides L2 latency.
constexpr int COUNT_BATCH = 4;

// The rows of a loss. Same layout as the struct that losses/row_loss.rs builds.
struct LossRows {
  const int *labels, *image_idx;  // [rows]
  const int* num_images;          // [1]
  const int* count;               // [1] rows in use; null: all
  int rows, images_per_group;
  int least_label;     // rows with smaller labels are not counted
  int rows_per_image;  // divisor per image, regardless of labels; 0: number of counted rows
};
static_assert(sizeof(LossRows) == 48, "the launches build it");

// Incoming gradient of a loss, [1]: the loss scale in fp32, or a tensor of `real`. One of the two
// is null.
struct LossGradient {
  const float* wide;
  const real* narrow;
  DEVICE float load() const { return wide ? *wide : to_float(*narrow); }
};
static_assert(sizeof(LossGradient) == 16, "the launches build it");

// The maximum logit of a row, and the sum of exp(logit - maximum).
struct Exponentials {
  float greatest, sum;
};

DEVICE Exponentials exponentials(const real* row, int classes, int lane) {
  float greatest = -INFINITY;
  for (int c = lane; c < classes; c += 32) greatest = fmaxf(greatest, to_float(row[c]));
  greatest = warp_max(greatest);
  float sum = 0.0f;
  for (int c = lane; c < classes; c += 32) sum += expf(to_float(row[c]) - greatest);
  return {greatest, warp_sum(sum)};
}

struct LossGroups {
  int images, groups;
  int rows;  // in use
};

DEVICE LossGroups loss_groups(const LossRows& in) {
  const int images = max(*in.num_images, 0);
  const int groups = images / in.images_per_group + (images % in.images_per_group != 0);
  return {images, groups, in.count ? min(max(*in.count, 0), in.rows) : in.rows};
}

// Group of a row, -1 if the row is not counted.
DEVICE int group_of(const LossRows& in, const LossGroups& g, int row) {
  if (row >= g.rows) return -1;
  const int label = in.labels[row], image = in.image_idx[row];
  const bool counts = label >= in.least_label && image >= 0 && image < g.images;
  return counts ? image / in.images_per_group : -1;
}

// Counts the rows of groups first .. first + WINDOW into counts [WINDOW] in shared memory. Called
// by all threads of a one-dimensional block of full warps.
DEVICE void count_rows(const LossRows& in, const LossGroups& g, int first, int* counts) {
  __syncthreads();  // the previous window is no longer read
  for (int i = threadIdx.x; i < WINDOW; i += blockDim.x) {
    counts[i] = 0;
    if (in.rows_per_image > 0 && first + i < g.groups) {
      const int before = (first + i) * in.images_per_group;
      counts[i] = in.rows_per_image * min(in.images_per_group, g.images - before);
    }
  }
  __syncthreads();
  if (in.rows_per_image > 0) return;
  for (int base = 0; base < g.rows; base += COUNT_BATCH * blockDim.x) {
    int slots[COUNT_BATCH];
    for (int i = 0; i < COUNT_BATCH; i++) {
      const int slot = group_of(in, g, base + i * blockDim.x + threadIdx.x) - first;
      slots[i] = slot >= 0 && slot < WINDOW ? slot : -1;
    }
    // Rows of an image are adjacent: one atomic per group of a warp, not per row.
    for (int i = 0; i < COUNT_BATCH; i++) {
      const unsigned same = __match_any_sync(ALL_LANES, slots[i]);
      const bool speaks = (int)(threadIdx.x % 32) == __ffs((int)same) - 1;
      if (slots[i] >= 0 && speaks) atomicAdd(&counts[slots[i]], __popc(same));
    }
  }
  __syncthreads();
}

// Weight of a row whose group is in this window. 0 in the first window if the row is not counted,
// negative if its group is in a different window. So over the windows from first = 0 on, while
// first == 0 or first < groups, each row gets exactly one non-negative weight.
DEVICE float row_weight(const LossRows& in, const LossGroups& g, int row, int first,
                        const int* counts) {
  const int group = group_of(in, g, row), slot = group - first;
  if (group < 0) return first == 0 ? 0.0f : -1.0f;
  if (slot < 0 || slot >= WINDOW) return -1.0f;
  return 1.0f / ((float)counts[slot] * (float)g.groups);
}

// Writes the sum of a launch's partial sums, in a fixed order. Called by a single block.
DEVICE void write_total(const float* partials, int count, float* total) {
  SHARED(float, scratch, 32);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < count; i += blockDim.x) sum += partials[i];
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) *total = sum;
}

// Loss of an element and its derivative.
struct Element {
  float loss, slope;
};

// Binary cross-entropy of logit x against a target in 0..1. No exponential overflows.
DEVICE Element bce_with_logits(float x, float target) {
  const float e = expf(-fabsf(x));
  const float softplus = fmaxf(x, 0.0f) + log1pf(e);
  const float sigmoid = (x >= 0.0f ? 1.0f : e) / (1.0f + e);
  return {softplus - x * target, sigmoid - target};
}

// Smooth L1 of prediction - target: quadratic below beta, linear above; derivative 0 at 0.
DEVICE Element smooth_l1(float difference, float beta) {
  const float size = fabsf(difference);
  if (size < beta) return {0.5f * difference * difference / beta, difference / beta};
  if (difference == 0.0f) return {0.0f, 0.0f};
  // The last case is NaN, which propagates.
  const float sign = difference > 0.0f ? 1.0f : difference < 0.0f ? -1.0f : difference;
  return {size - 0.5f * beta, sign};
}
