// Smooth L1 loss of box deltas, by group, and its gradient: the sum over positive rows over the
// number of sampled rows.
//
//   pred         [M, 4]  real        in   predicted deltas
//   target       [M, 4]  float       in   deltas to the ground truth
//   labels       [M]     int         in   above 0: positive; -1: not sampled
//   image_idx    [M]     int         in   image of the row
//   num_images   [1]     int         in   images in use
//   loss         [1]     float       out  forward
//   grad_output  [1]     real/float  in   backward: gradient of the loss
//   grad_pred    [M, 4]  real        out  backward: 0 in rows that are not positive
//
// Launch: the loss is one block of 1,024 threads, the gradient a thread per row in at most 128 such
// blocks.
// Cost: 32 or 40 bytes per positive row, 8 or 16 per other row; at 6,144 rows (12 images)
// latency-bound.
// Numerics: fp32, sums in a fixed order, gradients rounded once.
// Edges: no rows or no positive row give 0; beta 0 is L1; a row that is not positive may hold
// anything.
//
// Matches the box losses of torchvision and maskrcnn-benchmark.
#include "platform.cuh"
#include "losses.cuh"

REALS(fp16, fp32)

// Losses of a row's four deltas.
struct Deltas {
  Element of[4];
};

DEVICE Deltas row_deltas(const real* pred, const float* target, int row, float beta) {
  const Real4 packed = *(const Real4*)(pred + 4 * (uint64_t)row);
  const float4 wanted = *(const float4*)(target + 4 * (uint64_t)row);
  const real* got = (const real*)&packed;
  Deltas d;
  d.of[0] = smooth_l1(to_float(got[0]) - wanted.x, beta);
  d.of[1] = smooth_l1(to_float(got[1]) - wanted.y, beta);
  d.of[2] = smooth_l1(to_float(got[2]) - wanted.z, beta);
  d.of[3] = smooth_l1(to_float(got[3]) - wanted.w, beta);
  return d;
}

KERNEL(1024)
smooth_l1_loss_f16(const real* RESTRICT pred, const float* RESTRICT target, LossRows in, float beta,
                   float* RESTRICT loss) {
  SHARED(int, counts, WINDOW);
  SHARED(float, scratch, 32);
  const LossGroups g = loss_groups(in);
  float sum = 0.0f;
  for (int first = 0; first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = threadIdx.x; row < g.rows; row += blockDim.x) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight <= 0.0f || in.labels[row] <= 0) continue;
      const Deltas d = row_deltas(pred, target, row, beta);
      sum += weight * (d.of[0].loss + d.of[1].loss + d.of[2].loss + d.of[3].loss);
    }
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) *loss = sum;
}
EXPORT(smooth_l1_loss_f16)

KERNEL(1024)
smooth_l1_loss_grad_f16(const real* RESTRICT pred, const float* RESTRICT target, LossRows in,
                        float beta, LossGradient grad_output, real* RESTRICT grad_pred) {
  SHARED(int, counts, WINDOW);
  const LossGroups g = loss_groups(in);
  const float incoming = grad_output.load();
  for (int first = 0; first == 0 || first < g.groups; first += WINDOW) {
    count_rows(in, g, first, counts);
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < in.rows;
         row += gridDim.x * blockDim.x) {
      const float weight = row_weight(in, g, row, first, counts);
      if (weight < 0.0f) continue;
      Real4 packed = {};
      if (weight > 0.0f && in.labels[row] > 0) {
        const Deltas d = row_deltas(pred, target, row, beta);
        real* grad = (real*)&packed;
        for (int i = 0; i < 4; i++) grad[i] = to_real(incoming * weight * d.of[i].slope);
      }
      *(Real4*)(grad_pred + 4 * (uint64_t)row) = packed;
    }
  }
}
EXPORT(smooth_l1_loss_grad_f16)
