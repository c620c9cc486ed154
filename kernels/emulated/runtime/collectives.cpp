// Barriers, warp collectives, shared memory, asynchronous copies and tensor-core products.
#include "runtime.h"

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
  char* order = &b.barriers[b.barrier_phase & 1];
  __tsan_release(order);
#endif
  to_scheduler();
#ifdef EMULATED_TSAN
  __tsan_acquire(order);
#endif
  return b.predicates;
}

// True if every lane of the mask has come; a fault if one cannot.
EMULATED_NO_TSAN static bool all_met(Fiber* warp, unsigned count, unsigned mask, Meeting meeting,
                                     Place place) {
  bool all = true;
  for (unsigned l = 0; l < count; l++) {
    if (!(mask >> l & 1)) continue;
    const Fiber& other = warp[l];
    if (other.state == State::DONE)
      fail("warp operation with lane " + std::to_string(l) + ", which has returned", place);
    if (other.state != State::AT_WARP)
      all = false;
    else if (other.meeting != meeting || other.mask != mask)
      fail("divergent warp operation: lane " + std::to_string(l) + " waits at " +
               describe(other.place) + " with another operation or mask",
           place);
  }
  return all;
}

EMULATED_NO_TSAN void collective(unsigned mask, const void* in, void* out, Meeting meeting,
                                 const void* parameter, Place place) {
  Fiber& me = running_fiber();
  Block& b = running_block();
  const unsigned first = me.linear & ~31u;
  Fiber* warp = &b.fibers[first];
  const unsigned count = b.count - first < 32 ? b.count - first : 32;
  if (count < 32) mask &= (1u << count) - 1;
  if (!(mask >> me.lane & 1)) fail("warp operation with a mask that lacks its own lane", place);
  me.mask = mask;
  me.meeting = meeting;
  me.in = in;
  me.out = out;
  me.place = place;
  me.state = State::AT_WARP;
#ifdef EMULATED_TSAN
  unsigned& phase = b.warp_phase[first / 32];
  char* order = &b.warps[first / 32][phase & 1];
  __tsan_release(order);
#endif
  if (all_met(warp, count, mask, meeting, place)) {
    Lanes lanes;
    lanes.count = count;
    lanes.mask = mask;
    for (unsigned l = 0; l < count; l++) {
      lanes.in_[l] = warp[l].in;
      lanes.out_[l] = warp[l].out;
    }
#ifdef EMULATED_TSAN
    __tsan_acquire(order);
#endif
    meeting(lanes, parameter);
#ifdef EMULATED_TSAN
    __tsan_release(order);
    phase++;
#endif
    for (unsigned l = 0; l < count; l++)
      if (mask >> l & 1) warp[l].state = State::RUNS;
  } else {
    to_scheduler();
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

unsigned active_mask() {
  const Block& b = running_block();
  const unsigned first = running_fiber().linear & ~31u;
  unsigned mask = 0;
  for (unsigned l = 0; l < 32 && first + l < b.count; l++)
    if (b.fibers[first + l].state != State::DONE) mask |= 1u << l;
  return mask;
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
    memcpy(copy.to, copy.from, (size_t)copy.valid);
    memset((char*)copy.to + copy.valid, 0, 16 - (size_t)copy.valid);
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
    const uint16_t* rows[8];
    for (unsigned r = 0; r < 8; r++) rows[r] = (const uint16_t*)lanes.in_[m * 8 + r];
    for (unsigned l = 0; l < 32; l++) {
      uint16_t pair[2];
      for (unsigned k = 0; k < 2; k++) {
        const unsigned row = transposed ? 2 * (l % 4) + k : l / 4,
                       column = transposed ? l / 4 : 2 * (l % 4) + k;
        pair[k] = rows[row][column];
      }
      memcpy(&lanes.out<Fragment>(l).r[m], pair, 4);
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
static void multiply_meeting(const Lanes& lanes, const void*) {
  // Gathered into whole matrices: a[row][k], b[k][column], so that columns run in vectors.
  alignas(32) float a[16][16], b[16][8], d[16][8];
  auto widen = [](unsigned word, unsigned half_of) {
    const uint16_t bits = (uint16_t)(word >> (16 * half_of));
    _Float16 value;
    memcpy(&value, &bits, 2);
    return (float)value;
  };
  for (unsigned l = 0; l < 32; l++) {
    const Product& in = lanes.in<Product>(l);
    const unsigned g = l / 4, t = l % 4;
    for (unsigned k = 0; k < 2; k++) {
      for (unsigned r = 0; r < 4; r++)
        a[g + 8 * (r & 1)][2 * t + 8 * (r >> 1) + k] = widen(in.a[r], k);
      for (unsigned r = 0; r < 2; r++) b[2 * t + 8 * r + k][g] = widen(in.b[r], k);
    }
    for (unsigned e = 0; e < 4; e++) d[g + 8 * (e >> 1)][2 * t + (e & 1)] = in.c[e];
  }
  for (int i = 0; i < 16; i++) {
    float sum[8];
    for (int j = 0; j < 8; j++) sum[j] = d[i][j];
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 8; j++) sum[j] += a[i][k] * b[k][j];
    for (int j = 0; j < 8; j++) d[i][j] = sum[j];
  }
  for (unsigned l = 0; l < 32; l++) {
    const unsigned g = l / 4, t = l % 4;
    for (unsigned e = 0; e < 4; e++) lanes.out<Sums>(l).d[e] = d[g + 8 * (e >> 1)][2 * t + (e & 1)];
  }
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
