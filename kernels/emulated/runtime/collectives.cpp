// How threads meet: barriers, warp collectives, shared memory, and waits for copies.
#include "runtime.h"

namespace emulated {
int barrier(int predicate, Place place, int site) {
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

[[noreturn]] __attribute__((noinline, cold)) static void fail_divergent(const Fiber& other,
                                                                        Place place) {
  fail("divergent warp operation: lane " + std::to_string(other.lane) + " waits at " +
           describe(other.place) + " with another operation or mask",
       place);
}

// That a lane which has come to the same collective means the same.
static inline void expect_same(const Fiber& other, const Fiber& me) {
  if (other.meeting != me.meeting || other.mask != me.mask) fail_divergent(other, me.place);
}

[[noreturn]] __attribute__((noinline, cold)) static void fail_returned(unsigned lanes,
                                                                       Place place) {
  fail("warp operation with lane " + std::to_string(__builtin_ctz(lanes)) + ", which has returned",
       place);
}

void collective(unsigned mask, const void* in, void* out, Meeting meeting, const void* parameter,
                Place place) {
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

static void nothing(const Lanes&, const void*) {}
void sync_warp(Place place, unsigned mask) {
  collective(mask, nullptr, nullptr, nothing, nullptr, place);
}

unsigned active_mask() {
  const Block& b = running_block();
  const unsigned first = running_fiber().linear & ~31u, count = b.count - first;
  return (count < 32 ? (1u << count) - 1 : 0xffffffffu) & ~b.warps[first / 32].done;
}

// ---------------------------------------------------------------- shared memory
static void poison(void* memory, size_t bytes) {  // NaN, or -1
#ifdef EMULATED_TSAN
  // TSan knows memset, and would take it for a write of the thread that came first.
  asm volatile("rep stosb" : "+D"(memory), "+c"(bytes) : "a"(0xff) : "memory");
#else
  memset(memory, 0xff, bytes);
#endif
}

static unsigned char* take_shared(Block& b, size_t bytes, Place place) {
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
  poison(memory, bytes);
  return memory;
}

void clear_shared(Block& b) {
  b.used = 0;
  b.allocations.clear();
#ifdef EMULATED_ASAN
  ASAN_POISON_MEMORY_REGION(b.memory, SHARED_ROOM);
#endif
}

void check_shared(Block& b) {
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

void* shared(const void* key, size_t bytes, Place place) {
  Block& b = running_block();
  if (b.allocations.empty()) dynamic_shared();
  for (const Allocation& a : b.allocations)
    if (a.key == key) return b.memory + a.offset;
  const size_t offset = b.used;
  unsigned char* memory = take_shared(b, bytes, place);
  b.allocations.push_back({key, offset, bytes, place});
  return memory;
}

unsigned char* dynamic_shared() {
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
  if (block->counter) {
    count_lane(COPY_TO_SHARED, place, to, 16, 16);
    count_lane(COPY_FROM_GLOBAL, place, from, valid, 16);
  }
  Fiber& me = running_fiber();
  // Hardware lands a copy at any time until it is waited for.
  Block& b = running_block();
  const bool lands = b.random && next_random(b) >> 63;
  if (lands) copy_16(to, from, valid);
  me.copies.push_back({to, from, valid, me.group, place, lands});
}
void copy_async_commit() { running_fiber().group++; }
void copy_async_wait(int pending) {
  Fiber& me = running_fiber();
  size_t done = 0;
  for (; done < me.copies.size() && me.copies[done].group < me.group - pending; done++) {
    const AsyncCopy& copy = me.copies[done];
    if (!copy.landed) copy_16(copy.to, copy.from, copy.valid);
  }
  me.copies.erase(me.copies.begin(), me.copies.begin() + (ptrdiff_t)done);
}

}  // namespace emulated
