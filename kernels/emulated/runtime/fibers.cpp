// Fibers: switching stacks, and the scheduler that runs the threads of one block.
#include "runtime.h"

namespace emulated {
__thread Thread* current = nullptr;
__thread BlockIndex* block = nullptr;

std::string describe(Place place) {
  const char* slash = strrchr(place.file, '/');
  return std::string(slash ? slash + 1 : place.file) + ":" + std::to_string(place.line);
}

// ---------------------------------------------------------------- switching stacks
// A stack at rest holds, from its top: where to go on, and the frame pointer. The jump instead of a
// return is predicted well, as all lanes of a warp go on at the same place. Out of line, so that
// the compiler saves what the caller needs; the red zone below the stack pointer is left alone.
__attribute__((noinline)) static void switch_stacks(void** save, void* load) {
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n"
      "pushq %%rbp\n"
      "leaq 1f(%%rip), %%rax\n"
      "pushq %%rax\n"
      "movq %%rsp, (%0)\n"
      "movq %1, %%rsp\n"
      "popq %%rax\n"
      "jmp *%%rax\n"
      "1: popq %%rbp\n"
      "leaq 128(%%rsp), %%rsp\n"
      : "+D"(save), "+S"(load)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc",
        "memory");
}

[[noreturn]] static void entry();

// A stack on which `entry` begins.
static void prepare(Fiber& fiber) {
#ifdef EMULATED_ASAN
  ASAN_UNPOISON_MEMORY_REGION(fiber.stack, STACK_BYTES);  // red zones that an earlier fiber left
#endif
  fiber.state = State::RUNS;
  // Stacks start at different cache sets.
  uintptr_t top =
      ((uintptr_t)fiber.stack + STACK_BYTES - (fiber.linear % 61) * 64) & ~(uintptr_t)15;
  void** frame = (void**)top;
  frame[-1] = nullptr;
  frame[-2] = (void*)&entry;
  fiber.stack_pointer = frame - 2;
}

// Leaves the running stack, kept at `save`, for that of `next`, or the scheduler's if null.
static void switch_to(Block& b, Fiber* next, void** save, bool returns) {
  if (next) {
    current = next;
    if (next->state == State::FRESH) prepare(*next);
  }
  void* load = next ? next->stack_pointer : b.scheduler_stack_pointer;
#ifdef EMULATED_TSAN
  __tsan_switch_to_fiber(next ? next->tsan : b.tsan_scheduler, 1);
#endif
#ifdef EMULATED_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(returns ? &fake : nullptr, next ? next->stack : b.scheduler_stack,
                                 next ? STACK_BYTES : b.scheduler_stack_bytes);
#endif
  switch_stacks(save, load);
#ifdef EMULATED_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  (void)returns;
}

// ---------------------------------------------------------------- who runs next
static Fiber* at(Block& b, unsigned position) { return &b.fibers[b.order[position]]; }

// In a random order all go forward to the end, and are shuffled there. By index a warp runs for as
// long as it can: its stacks stay in the cache.
static Fiber* next_ready(Block& b) {
  const unsigned words = (b.count + 31) / 32;
  unsigned word = b.cursor / 32;
  const uint32_t bits = b.ready[word], after = bits & ~((2u << b.cursor % 32) - 1);
  auto take = [&](unsigned w, uint32_t from) {
    b.cursor = w * 32 + (unsigned)__builtin_ctz(from);
    return at(b, b.cursor);
  };
  if (after) return take(word, after);
  if (bits && !b.random) return take(word, bits);
  for (unsigned w = word + 1; w < words; w++)
    if (b.ready[w]) return take(w, b.ready[w]);
  for (unsigned w = 0; w < word && !b.random; w++)
    if (b.ready[w]) return take(w, b.ready[w]);
  return nullptr;
}

void wait_until_ready() {
  Fiber& me = running_fiber();
  Block& b = running_block();
  clear_ready(b, me.position);
  switch_to(b, next_ready(b), &me.stack_pointer, true);
}

void fail(const std::string& what, Place place) {
  Block& b = running_block();
  Fiber& me = running_fiber();
  auto triple = [](uint3 v) {
    return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
  };
  b.failed = true;
  b.error = describe(place) + ": " + what + ", thread " + triple(me.index) + " of block " +
            triple(b.index);
  switch_to(b, nullptr, &me.stack_pointer, false);  // the block is abandoned
  __builtin_unreachable();
}
void fail(const char* what, Place place) { fail(std::string(what), place); }

// A copy that lands after its block has ended may land in shared memory of the next one.
[[noreturn]] __attribute__((noinline, cold)) static void fail_pending(const Fiber& me) {
  fail("asynchronous copy that is still pending as its thread returns", me.copies.front().place);
}

// First frame of a stack. It runs one thread after another for as long as they are fresh: threads
// that never wait share one stack, and cost no switch.
static void entry() {
  Block& b = running_block();
#ifdef EMULATED_ASAN
  const void* from;
  size_t from_bytes;
  __sanitizer_finish_switch_fiber(nullptr, &from, &from_bytes);
  if (!b.scheduler_stack) {  // the first thread of all comes from there
    b.scheduler_stack = from;
    b.scheduler_stack_bytes = from_bytes;
  }
#endif
  for (;;) {
#ifdef EMULATED_TSAN
    __tsan_acquire(&b.happens_before.start);
#endif
    b.kernel->call(b.kernel->function, b.arguments);
    Fiber& me = running_fiber();
    if (!me.copies.empty()) fail_pending(me);
    me.state = State::DONE;
    b.alive--;
    b.warps[me.linear / 32].done |= 1u << me.lane;
    clear_ready(b, me.position);
    Fiber* next = next_ready(b);
#ifdef EMULATED_TSAN
    __tsan_release(&b.happens_before.end);  // a thread for TSan keeps its stack
#else
    if (next && next->state == State::FRESH) {
      std::swap(next->stack, me.stack);
      next->state = State::RUNS;
      current = next;
      continue;
    }
#endif
    switch_to(b, next, &me.stack_pointer, false);
  }
}

uint64_t next_random(Block& b) {
  b.random ^= b.random << 13;
  b.random ^= b.random >> 7;
  b.random ^= b.random << 17;
  return b.random;
}

// Another order; who was ready stays so.
static void shuffle_order(Block& b) {
  for (uint64_t i = b.order.size(); i > 1; i--)
    std::swap(b.order[i - 1], b.order[(next_random(b) >> 32) * i >> 32]);
  memset(b.ready, 0, sizeof b.ready);
  for (unsigned p = 0; p < b.count; p++) {
    Fiber& f = *at(b, p);
    f.position = p;
    if (f.state == State::FRESH || f.state == State::RUNS) set_ready(b, p);
  }
}

// ---------------------------------------------------------------- blocks
// All living threads wait at a barrier: they go on, unless the barriers differ.
static void release_barrier(Block& b) {
  const Fiber* first = nullptr;
  int predicates = 0;
  for (const Fiber& f : b.fibers) {
    if (f.state != State::AT_BARRIER) continue;
    if (!first) first = &f;
    if (f.site != first->site || f.place.file != first->place.file) {
      b.failed = true;
      b.error = "barrier divergence: thread " + std::to_string(first->linear) + " waits at " +
                describe(first->place) + ", thread " + std::to_string(f.linear) + " at " +
                describe(f.place);
      return;
    }
    predicates += f.predicate != 0;
  }
  if (b.alive != b.count) {
    b.failed = true;
    b.error = "barrier at " + describe(first->place) + " reached by " + std::to_string(b.alive) +
              " of " + std::to_string(b.count) + " threads: the others have returned";
    return;
  }
  b.predicates = predicates;
  b.waiting = 0;
#ifdef EMULATED_TSAN
  b.happens_before.barrier_phase++;
#endif
  for (Fiber& f : b.fibers) {
    f.state = State::RUNS;
    set_ready(b, f.position);
  }
}

// Nobody can go on, and not all wait at a barrier.
static void report_deadlock(Block& b) {
  b.failed = true;
  for (const Fiber& f : b.fibers) {
    const unsigned returned = f.mask & b.warps[f.linear / 32].done;
    if (f.state != State::AT_WARP || !returned) continue;
    b.error = describe(f.place) + ": warp operation with lane " +
              std::to_string(__builtin_ctz(returned)) + ", which has returned, thread " +
              std::to_string(f.linear);
    return;
  }
  b.error = "deadlock:";
  State shown = State::DONE;
  for (const Fiber& f : b.fibers) {  // one of each kind in turn, not a list of all threads
    if ((f.state != State::AT_BARRIER && f.state != State::AT_WARP) || f.state == shown) continue;
    shown = f.state;
    b.error += " thread " + std::to_string(f.linear) +
               (f.state == State::AT_BARRIER ? " waits at barrier " : " waits at warp operation ") +
               describe(f.place) + ";";
    if (b.error.size() > 400) break;
  }
}

static void start(Block& b) {
  b.alive = b.count;
  b.waiting = b.cursor = 0;
  b.failed = false;
  clear_shared(b);
  memset(b.ready, 0, sizeof b.ready);
  memset(b.warps, 0, sizeof b.warps);
  for (Fiber& f : b.fibers) {
    f.state = State::FRESH;
    if (!f.copies.empty()) f.copies.clear();
    f.group = 0;
    f.mask = 0;
    set_ready(b, f.position);
  }
}

void run_block(Block& b) {
  block = &b;
  start(b);
#ifdef EMULATED_TSAN
  memset(&b.happens_before, 0, sizeof b.happens_before);
  __tsan_release(&b.happens_before.start);
#endif
  while (!b.failed && b.alive) {
    if (b.random) shuffle_order(b);
    b.cursor = 0;
    Fiber* first = b.ready[0] & 1 ? at(b, 0) : next_ready(b);
    if (first)
      switch_to(b, first, &b.scheduler_stack_pointer, true);
    else if (b.waiting == b.alive)
      release_barrier(b);
    else
      report_deadlock(b);
  }
  if (!b.failed) check_shared(b);
#ifdef EMULATED_TSAN
  __tsan_acquire(&b.happens_before.end);
#endif
}
}  // namespace emulated
