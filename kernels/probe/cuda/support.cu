// What the driver of the variants needs on the device: inputs, caches emptied, outputs compared.
//
// Random values are a hash of seed and index, so that every process has the same; sums of four
// uniform ones, which are near enough to normal: zeros and constants would flatter the tensor
// cores.
#include "platform.cuh"

DEVICE unsigned mixed(unsigned x) {
  x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
  return x ^ x >> 16;
}

// to[i] = `scale` times a value of mean 0 and variance 1; its magnitude if asked.
KERNEL(256)
probe_random_f16(half* RESTRICT to, uint64_t count, unsigned seed, float scale, int magnitude) {
  const uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  const unsigned a = mixed((unsigned)i ^ seed), b = mixed(a ^ 0x9e3779b9u);
  const unsigned sum = (a >> 16) + (a & 0xffff) + (b >> 16) + (b & 0xffff);
  // The sum of four uniform values of [0, 1) has mean 2 and variance 1/3.
  const float value = ((float)sum / 65536.0f - 2.0f) * 1.7320508f * scale;
  to[i] = __float2half_rn(magnitude ? fabsf(value) : value);
}
EXPORT(probe_random_f16)

KERNEL(256)
probe_fill(unsigned* RESTRICT to, uint64_t words, unsigned value) {
  const uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;
  if (i < words) to[i] = value;
}
EXPORT(probe_fill)

// Compares two outputs; found[0] counts values whose bits differ, [1] those that differ by more
// than relative * |wanted| + absolute * magnitude (a NaN in either is one), [2] is the lowest index
// of such, [3] the bits of the largest difference over what is allowed.
KERNEL(256)
probe_compare(const half* RESTRICT wanted, const half* RESTRICT got, const half* RESTRICT magnitude,
              uint64_t count, float relative, float absolute, unsigned* RESTRICT found) {
  const uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  const bool same = __half_as_ushort(wanted[i]) == __half_as_ushort(got[i]);
  if (!same) atomicAdd(&found[0], 1u);
  const float a = __half2float(wanted[i]), b = __half2float(got[i]);
  const float allowed = relative * fabsf(a) + absolute * __half2float(magnitude[i]);
  const float share = fabsf(a - b) / fmaxf(allowed, 1e-30f);
  // Not share > 1, so that a NaN counts.
  if (!(share <= 1.0f)) {
    atomicAdd(&found[1], 1u);
    atomicMin(&found[2], (unsigned)i);
  }
  if (share > 0.0f) atomicMax(&found[3], (unsigned)__float_as_int(share));
}
EXPORT(probe_compare)
