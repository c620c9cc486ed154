// What collectives do with the memory of kernels: this file is instrumented as kernels are, so that
// TSan sees the accesses. The rest of the runtime is not.
#include "runtime.h"
#include <cmath>
#include <ctime>
#include <immintrin.h>

namespace emulated {
static void ballot_meeting(const Lanes& lanes, const void*) {
  unsigned votes = 0;
  for (unsigned l = 0; l < lanes.count; l++)
    if (lanes.has(l) && lanes.in<bool>(l)) votes |= 1u << l;
  for (unsigned l = 0; l < lanes.count; l++)
    if (lanes.has(l)) lanes.out<unsigned>(l) = votes;
}
unsigned ballot(unsigned mask, bool predicate, Place place) {
  unsigned votes;
  collective(mask, &predicate, &votes, ballot_meeting, nullptr, place);
  return votes;
}

// Of 16 bytes the first `valid` are copied, the others zero.
void copy_16(void* to, const void* from, int valid) {
  if (valid == 16) {
    memcpy(to, from, 16);
  } else {
    memcpy(to, from, (size_t)valid);
    memset((char*)to + valid, 0, 16 - (size_t)valid);
  }
}

// ---------------------------------------------------------------- matrices
struct Fragment {
  unsigned r[4];
};
template <bool transposed>
static void load_meeting(const Lanes& lanes, const void* place) {
  if (block->counter) count_warp(LDMATRIX, *(const Place*)place, lanes.in_, 16);
  for (unsigned m = 0; m < 4; m++) {
    uint16_t matrix[8][8];
    for (unsigned r = 0; r < 8; r++) memcpy(matrix[r], lanes.in_[m * 8 + r], 16);
    for (unsigned l = 0; l < 32; l++) {
      const unsigned g = l / 4, t = l % 4 * 2;
      lanes.out<Fragment>(l).r[m] = transposed ? matrix[t][g] | (unsigned)matrix[t + 1][g] << 16
                                               : matrix[g][t] | (unsigned)matrix[g][t + 1] << 16;
    }
  }
}
void load_matrix_x4(unsigned (&r)[4], const void* row, bool transposed, const char* file,
                    int line) {
  const Place place{file, line};
  if ((uintptr_t)row & 15)
    fail("misaligned ldmatrix: the row's address is no multiple of 16", place);
  Fragment out;
  collective(0xffffffffu, row, &out, transposed ? load_meeting<true> : load_meeting<false>, &place,
             place);
  memcpy(r, out.r, sizeof out.r);
}

struct Product {
  unsigned a[4], b[2];
  float c[4];
};
struct Sums {
  float d[4];
};
// Eight halves as floats.
static __m256 widen(const unsigned* words) {
  return _mm256_cvtph_ps(_mm_load_si128((const __m128i*)words));
}
// c + sum of a[k] * b[k], as an A100 does it: eight products and c are aligned to the largest of
// them, with one bit more than fp32 has, cut off there, added exactly, and cut off again to fp32.
// (Fasi et al. 2021, PeerJ CS 7:e330; Khattak and Mikaitis 2025, arXiv 2512.07004. An H100 adds
// sixteen at a time with one more bit, so it errs less.) NaN and infinity pass through.
static float cut_sum(const float* a, const float* b, float c) {
  constexpr int GROUP = 8, BITS = 24 + 1;
  for (int first = 0; first < 16; first += GROUP) {
    double terms[GROUP + 1] = {c}, largest = std::fabs((double)c);
    for (int k = 0; k < GROUP; k++) {
      terms[k + 1] = (double)a[first + k] * (double)b[first + k];
      largest = std::fmax(largest, std::fabs(terms[k + 1]));
    }
    double plain = 0;
    for (double term : terms) plain += term;
    if (!std::isfinite(plain)) return (float)plain;
    if (largest == 0) continue;
    int exponent;
    std::frexp(largest, &exponent);
    const double unit = std::ldexp(1.0, exponent - BITS);
    const double per_unit = std::ldexp(1.0, BITS - exponent);
    double units = 0;
    for (double term : terms) units += std::trunc(term * per_unit);
    const double sum = units * unit;
    c = (float)sum;
    if (std::fabs((double)c) > std::fabs(sum)) c = std::nextafter(c, 0.0f);
  }
  return c;
}
static void multiply_meeting(const Lanes& lanes, const void*) {
  // Gathered into whole matrices: a[row][k], and b[k][column], so that columns run in vectors. A
  // product of two halves is exact in fp32: a fused multiply-add rounds as two operations would.
  alignas(32) unsigned a_words[16][8], b_words[8][8];
  alignas(32) float a[16][16], b_columns[8][16], b[16][8], d[16][8];
  for (unsigned l = 0; l < 32; l++) {
    const Product& in = lanes.in<Product>(l);
    const unsigned g = l / 4, t = l % 4;
    for (unsigned r = 0; r < 4; r++) a_words[g + 8 * (r & 1)][t + 4 * (r >> 1)] = in.a[r];
    for (unsigned r = 0; r < 2; r++) b_words[g][t + 4 * r] = in.b[r];
    for (unsigned h = 0; h < 2; h++) memcpy(&d[g + 8 * h][2 * t], &in.c[2 * h], 8);
  }
  for (unsigned i = 0; i < 16; i++)
    for (unsigned h = 0; h < 2; h++) _mm256_store_ps(&a[i][8 * h], widen(&a_words[i][4 * h]));
  for (unsigned j = 0; j < 8; j++)
    for (unsigned h = 0; h < 2; h++)
      _mm256_store_ps(&b_columns[j][8 * h], widen(&b_words[j][4 * h]));
  const bool cut = running_block().cut_sums;
  for (unsigned i = 0; cut && i < 16; i++)
    for (unsigned j = 0; j < 8; j++) d[i][j] = cut_sum(a[i], b_columns[j], d[i][j]);
  for (unsigned k = 0; k < 16; k++)
    for (unsigned j = 0; j < 8; j++) b[k][j] = b_columns[j][k];
  for (unsigned first = 0; !cut && first < 16; first += 8) {
    __m256 sum[8];
    for (unsigned i = 0; i < 8; i++) sum[i] = _mm256_load_ps(d[first + i]);
    for (unsigned k = 0; k < 16; k++) {
      const __m256 row = _mm256_load_ps(b[k]);
      for (unsigned i = 0; i < 8; i++)
        sum[i] = _mm256_fmadd_ps(_mm256_broadcast_ss(&a[first + i][k]), row, sum[i]);
    }
    for (unsigned i = 0; i < 8; i++) _mm256_store_ps(d[first + i], sum[i]);
  }
  for (unsigned l = 0; l < 32; l++)
    for (unsigned h = 0; h < 2; h++)
      memcpy(&lanes.out<Sums>(l).d[2 * h], &d[l / 4 + 8 * h][2 * (l % 4)], 8);
}
void multiply_16x8x16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                      const char* file, int line) {
  const Place place{file, line};
  if (block->counter) count_instruction(MMA, place);
  Product in;
  memcpy(in.a, a, 16);
  in.b[0] = b0;
  in.b[1] = b1;
  memcpy(in.c, d, 16);
  Sums out;
  collective(0xffffffffu, &in, &out, multiply_meeting, nullptr, place);
  memcpy(d, out.d, 16);
}

struct Tf32Product {
  unsigned a[4], b[2];
  float c[4];
};
static float float_of(unsigned bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
// A product of two numbers of 11 bits is exact in fp32, which the sum rounds in order of k.
static void multiply_tf32_meeting(const Lanes& lanes, const void*) {
  float a[16][8], b[8][8];
  for (unsigned l = 0; l < 32; l++) {
    const Tf32Product& in = lanes.in<Tf32Product>(l);
    const unsigned g = l / 4, t = l % 4;
    for (unsigned r = 0; r < 4; r++) a[g + 8 * (r & 1)][t + 4 * (r >> 1)] = float_of(in.a[r]);
    for (unsigned r = 0; r < 2; r++) b[t + 4 * r][g] = float_of(in.b[r]);
  }
  for (unsigned l = 0; l < 32; l++) {
    for (unsigned e = 0; e < 4; e++) {
      const unsigned row = l / 4 + 8 * (e / 2), column = 2 * (l % 4) + e % 2;
      float sum = lanes.in<Tf32Product>(l).c[e];
      for (unsigned k = 0; k < 8; k++) sum = fmaf(a[row][k], b[k][column], sum);
      lanes.out<Sums>(l).d[e] = sum;
    }
  }
}
void multiply_16x8x8_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                          const char* file, int line) {
  const Place place{file, line};
  if (block->counter) count_instruction(MMA, place);
  Tf32Product in;
  memcpy(in.a, a, 16);
  in.b[0] = b0;
  in.b[1] = b1;
  memcpy(in.c, d, 16);
  Sums out;
  collective(0xffffffffu, &in, &out, multiply_tf32_meeting, nullptr, place);
  memcpy(d, out.d, 16);
}

// ---------------------------------------------------------------- the clock
uint64_t global_timer() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
}  // namespace emulated
