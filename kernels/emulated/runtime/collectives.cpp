// Barriers, warp collectives, shared memory, asynchronous copies and tensor-core products.
#include "runtime.h"
#include <immintrin.h>

namespace emulated {
EMULATED_NO_TSAN int barrier(int predicate, Place place, int site) {
  Fiber& me = running_fiber();
  Block& b = running_block();
  me.state = State::AT_BARRIER;
  me.place = place;
  me.site = site;
  me.predicate = predicate;
  b.waiting++;
#ifdef EMULATED_TSAN
  char* order = &b.happens_before.barriers[b.happens_before.barrier_phase & 1];
  __tsan_release(order);
#endif
  wait_until_ready();
#ifdef EMULATED_TSAN
  __tsan_acquire(order);
#endif
  return b.predicates;
}

[[noreturn]] EMULATED_NO_TSAN __attribute__((noinline, cold)) static void fail_divergent(
    const Fiber& other, Place place) {
  fail("divergent warp operation: lane " + std::to_string(other.lane) + " waits at " +
           describe(other.place) + " with another operation or mask",
       place);
}

// That a lane which has come to the same collective means the same.
EMULATED_NO_TSAN static inline void expect_same(const Fiber& other, const Fiber& me) {
  if (other.meeting != me.meeting || other.mask != me.mask) fail_divergent(other, me.place);
}

[[noreturn]] EMULATED_NO_TSAN __attribute__((noinline, cold)) static void fail_returned(
    unsigned lanes, Place place) {
  fail("warp operation with lane " + std::to_string(__builtin_ctz(lanes)) + ", which has returned",
       place);
}

EMULATED_NO_TSAN void collective(unsigned mask, const void* in, void* out, Meeting meeting,
                                 const void* parameter, Place place) {
  Fiber& me = running_fiber();
  Block& b = running_block();
  Warp& warp = b.warps[me.linear / 32];
  const unsigned first = me.linear - me.lane;
  Fiber* lane = &b.fibers[first];
  const unsigned count = b.count - first < 32 ? b.count - first : 32;
  if (count < 32) mask &= (1u << count) - 1;
  me.mask = mask;
  me.meeting = meeting;
  me.in = in;
  me.out = out;
  me.place = place;
  if (!(mask >> me.lane & 1)) fail("warp operation with a mask that lacks its own lane", place);
  if (const unsigned returned = mask & warp.done) fail_returned(returned, place);
  if (const unsigned others = mask & warp.arrived) expect_same(lane[__builtin_ctz(others)], me);
  warp.arrived |= 1u << me.lane;
#ifdef EMULATED_TSAN
  const unsigned key = (unsigned)__builtin_ctz(mask);
  unsigned& phase = b.happens_before.warp_phase[first / 32][key];
  char* order = &b.happens_before.warps[first / 32][key][phase & 1];
  __tsan_release(order);
#endif
  if ((warp.arrived & mask) == mask) {
    Lanes lanes;
    lanes.count = count;
    lanes.mask = mask;
    for (unsigned l = 0; l < count; l++) {
      if (!(mask >> l & 1)) continue;
      expect_same(lane[l], me);
      lanes.in_[l] = lane[l].in;
      lanes.out_[l] = lane[l].out;
      lane[l].state = State::RUNS;
      if (b.random) set_ready(b, lane[l].position);
    }
    if (!b.random) b.ready[first / 32] |= mask;
    warp.arrived &= ~mask;
#ifdef EMULATED_TSAN
    __tsan_acquire(order);
#endif
    meeting(lanes, parameter);
#ifdef EMULATED_TSAN
    __tsan_release(order);
    phase++;
#endif
  } else {
    me.state = State::AT_WARP;
    wait_until_ready();
  }
#ifdef EMULATED_TSAN
  __tsan_acquire(order);
#endif
}

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

static void nothing(const Lanes&, const void*) {}
void sync_warp(Place place, unsigned mask) {
  collective(mask, nullptr, nullptr, nothing, nullptr, place);
}

EMULATED_NO_TSAN unsigned active_mask() {
  const Block& b = running_block();
  const unsigned first = running_fiber().linear & ~31u, count = b.count - first;
  return (count < 32 ? (1u << count) - 1 : 0xffffffffu) & ~b.warps[first / 32].done;
}

// ---------------------------------------------------------------- shared memory
EMULATED_NO_TSAN static unsigned char* take_shared(Block& b, size_t bytes, Place place) {
  size_t taken = 0;
  for (const Allocation& a : b.allocations) taken += a.bytes;
  if (taken + bytes > SHARED_LIMIT) fail("more shared memory than a block has", place);
  const size_t offset = b.used;
  unsigned char* memory = b.memory + offset;
  b.used = (offset + bytes + RED_ZONE + 127) & ~(size_t)127;
#ifdef EMULATED_ASAN
  ASAN_UNPOISON_MEMORY_REGION(memory, bytes);  // what follows stays poisoned
#else
  memset(memory + bytes, RED, b.used - offset - bytes);
#endif
  memset(memory, 0xff, bytes);  // NaN, or -1: shared memory starts undefined
  return memory;
}

EMULATED_NO_TSAN void clear_shared(Block& b) {
  b.used = 0;
  b.allocations.clear();
#ifdef EMULATED_ASAN
  ASAN_POISON_MEMORY_REGION(b.memory, SHARED_ROOM);
#endif
}

EMULATED_NO_TSAN void check_shared(Block& b) {
#ifndef EMULATED_ASAN
  for (size_t i = 0; i < b.allocations.size(); i++) {
    const Allocation& a = b.allocations[i];
    const size_t end = i + 1 < b.allocations.size() ? b.allocations[i + 1].offset : b.used;
    for (size_t k = a.offset + a.bytes; k < end && !b.failed; k++) {
      if (b.memory[k] == RED) continue;
      b.failed = true;
      b.error = describe(a.place) + ": a thread wrote past the end of this shared memory, " +
                std::to_string(a.bytes) + " bytes, at byte " + std::to_string(k - a.offset);
    }
  }
#else
  (void)b;
#endif
}

EMULATED_NO_TSAN void* shared(const void* key, size_t bytes, Place place) {
  Block& b = running_block();
  if (b.allocations.empty()) dynamic_shared();
  for (const Allocation& a : b.allocations)
    if (a.key == key) return b.memory + a.offset;
  const size_t offset = b.used;
  unsigned char* memory = take_shared(b, bytes, place);
  b.allocations.push_back({key, offset, bytes, place});
  return memory;
}

EMULATED_NO_TSAN unsigned char* dynamic_shared() {
  Block& b = running_block();
  if (b.allocations.empty()) {
    const Place place{"dynamic shared memory", 0};
    take_shared(b, b.dynamic_bytes, place);
    b.allocations.push_back({nullptr, 0, b.dynamic_bytes, place});
  }
  return b.memory;
}

// ---------------------------------------------------------------- asynchronous copies
void copy_async_16(const char* file, int line, void* to, const void* from, int valid) {
  const Place place{file, line};
  if ((uintptr_t)to & 15)
    fail("misaligned asynchronous copy: the shared address is no multiple of 16", place);
  if ((uintptr_t)from & 15)
    fail("misaligned asynchronous copy: the global address is no multiple of 16", place);
  if (valid < 0 || valid > 16)
    fail("asynchronous copy of fewer than 0 or more than 16 bytes", place);
  Fiber& me = running_fiber();
  me.copies.push_back({to, from, valid, me.group});
}
void copy_async_commit() { running_fiber().group++; }
void copy_async_wait(int pending) {
  Fiber& me = running_fiber();
  size_t done = 0;
  for (; done < me.copies.size() && me.copies[done].group < me.group - pending; done++) {
    const AsyncCopy& copy = me.copies[done];
    if (copy.valid == 16) {
      memcpy(copy.to, copy.from, 16);
    } else {
      memcpy(copy.to, copy.from, (size_t)copy.valid);
      memset((char*)copy.to + copy.valid, 0, 16 - (size_t)copy.valid);
    }
  }
  me.copies.erase(me.copies.begin(), me.copies.begin() + (ptrdiff_t)done);
}

// ---------------------------------------------------------------- matrices
struct Fragment {
  unsigned r[4];
};
template <bool transposed>
static void load_meeting(const Lanes& lanes, const void*) {
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
  collective(0xffffffffu, row, &out, transposed ? load_meeting<true> : load_meeting<false>, nullptr,
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
  for (unsigned k = 0; k < 16; k++)
    for (unsigned j = 0; j < 8; j++) b[k][j] = b_columns[j][k];
  for (unsigned first = 0; first < 16; first += 8) {
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
  Product in;
  memcpy(in.a, a, 16);
  in.b[0] = b0;
  in.b[1] = b1;
  memcpy(in.c, d, 16);
  Sums out;
  collective(0xffffffffu, &in, &out, multiply_meeting, nullptr, {file, line});
  memcpy(d, out.d, 16);
}
}  // namespace emulated
