// Fibers: switching stacks, and the scheduler that runs the threads of one block.
#include "runtime.h"

// Saves the callee-saved registers on the stack, exchanges the stack pointer, restores.
extern "C" void emulated_switch(void** save, void* load);
asm(R"(.text
.globl emulated_switch
.hidden emulated_switch
.type emulated_switch,@function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_switch,.-emulated_switch
)");

namespace emulated {
thread_local Thread* current = nullptr;
thread_local BlockIndex* block = nullptr;

Block& running_block() { return *static_cast<Block*>(block); }
Fiber& running_fiber() { return *static_cast<Fiber*>(current); }

std::string describe(Place place) {
  const char* slash = strrchr(place.file, '/');
  return std::string(slash ? slash + 1 : place.file) + ":" + std::to_string(place.line);
}

EMULATED_NO_TSAN void to_scheduler() {
  Fiber& me = running_fiber();
  Block& b = running_block();
#ifdef EMULATED_TSAN
  __tsan_switch_to_fiber(b.tsan_scheduler, 1);
#endif
#ifdef EMULATED_ASAN
  void* fake;
  __sanitizer_start_switch_fiber(&fake, b.scheduler_stack, b.scheduler_stack_bytes);
  emulated_switch(&me.stack_pointer, b.scheduler_stack_pointer);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  emulated_switch(&me.stack_pointer, b.scheduler_stack_pointer);
#endif
}

EMULATED_NO_TSAN void fail(const std::string& what, Place place) {
  Block& b = running_block();
  const Fiber& me = running_fiber();
  auto triple = [](uint3 v) {
    return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
  };
  b.failed = true;
  b.error = describe(place) + ": " + what + ", thread " + triple(me.index) + " of block " +
            triple(b.index);
  for (;;) to_scheduler();  // the block is abandoned
}
EMULATED_NO_TSAN void fail(const char* what, Place place) { fail(std::string(what), place); }

// First frame of a fiber.
EMULATED_NO_TSAN static void entry() {
#ifdef EMULATED_ASAN
  Block& b0 = running_block();
  __sanitizer_finish_switch_fiber(nullptr, &b0.scheduler_stack, &b0.scheduler_stack_bytes);
#endif
  Block& b = running_block();
#ifdef EMULATED_TSAN
  __tsan_acquire(&b.barriers[1]);
#endif
  b.kernel->call(b.kernel->function, b.arguments);
  running_fiber().state = State::DONE;
  b.alive--;
#ifdef EMULATED_TSAN
  __tsan_release(&b.barriers[1]);
#endif
  for (;;) to_scheduler();
}

EMULATED_NO_TSAN static void resume(Block& b, Fiber& fiber) {
  current = &fiber;
  if (fiber.state == State::FRESH) {
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
    for (int i = 3; i <= 8; i++) frame[-i] = nullptr;
    fiber.stack_pointer = frame - 8;
  }
#ifdef EMULATED_TSAN
  __tsan_switch_to_fiber(fiber.tsan, 1);
#endif
#ifdef EMULATED_ASAN
  void* fake;
  __sanitizer_start_switch_fiber(&fake, fiber.stack, STACK_BYTES);
  emulated_switch(&b.scheduler_stack_pointer, fiber.stack_pointer);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  emulated_switch(&b.scheduler_stack_pointer, fiber.stack_pointer);
#endif
}

static void shuffle_order(Block& b) {
  for (size_t i = b.order.size(); i > 1; i--) {
    b.random ^= b.random << 13;
    b.random ^= b.random >> 7;
    b.random ^= b.random << 17;
    std::swap(b.order[i - 1], b.order[b.random % i]);
  }
}

// All living threads wait at a barrier: they go on, unless the barriers differ.
static void release_barrier(Block& b) {
  const Fiber* first = nullptr;
  int predicates = 0;
  for (const Fiber& f : b.fibers) {
    if (f.state != State::AT_BARRIER) continue;
    if (!first) first = &f;
    if (f.site != first->site) {
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
  b.barrier_phase++;
  for (Fiber& f : b.fibers) f.state = State::RUNS;
}

static void report_deadlock(Block& b) {
  b.failed = true;
  b.error = "deadlock:";
  int shown = 0;
  for (const Fiber& f : b.fibers) {
    if (f.state != State::AT_BARRIER && f.state != State::AT_WARP) continue;
    if (shown++ == 4) break;
    b.error += " thread " + std::to_string(f.linear) +
               (f.state == State::AT_BARRIER ? " waits at barrier " : " waits at warp operation ") +
               describe(f.place) + ";";
  }
}

EMULATED_NO_TSAN void run_block(Block& b) {
  block = &b;
  b.alive = b.count;
  b.waiting = 0;
  b.failed = false;
  b.barrier_phase = 0;
  clear_shared(b);
  memset(b.warp_phase, 0, sizeof b.warp_phase);
  for (Fiber& f : b.fibers) {
    f.state = State::FRESH;
    f.copies.clear();
    f.group = 0;
  }
#ifdef EMULATED_TSAN
  __tsan_release(&b.barriers[1]);
#endif
  for (;;) {
    if (b.random) shuffle_order(b);
    bool progress = false;
    for (unsigned i : b.order) {
      Fiber& f = b.fibers[i];
      if (f.state != State::RUNS && f.state != State::FRESH) continue;
      progress = true;
      resume(b, f);
      if (b.failed) break;
    }
    if (!b.failed && b.alive && b.waiting == b.alive)
      release_barrier(b);
    else if (!b.failed && b.alive && !progress)
      report_deadlock(b);
    if (b.failed || !b.alive) break;
  }
  if (!b.failed) check_shared(b);
#ifdef EMULATED_TSAN
  __tsan_acquire(&b.barriers[0]);
  __tsan_acquire(&b.barriers[1]);
#endif
}
}  // namespace emulated
