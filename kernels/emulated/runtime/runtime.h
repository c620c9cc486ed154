// What the parts of the runtime share: the fibers of a block, and the hooks of the sanitizers.
#pragma once
#include "emulated.h"
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define EMULATED_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define EMULATED_TSAN 1
#define EMULATED_NO_TSAN __attribute__((no_sanitize_thread, noinline))
#else
#define EMULATED_NO_TSAN
#endif

namespace emulated {
enum class State : uint8_t { FRESH, RUNS, AT_BARRIER, AT_WARP, DONE };

// An asynchronous copy happens when it is waited for: who forgets to wait reads what was there.
struct AsyncCopy {
  void* to;
  const void* from;
  int valid, group;
};

struct Fiber : Thread {
  State state;
  int predicate, site, group;
  unsigned mask;
  Place place;
  Meeting meeting;
  const void* in;
  void* out;
  void* stack_pointer;
  char* stack;
  void* tsan;
  std::vector<AsyncCopy> copies;
};

struct Allocation {
  const void* key;
  size_t offset, bytes;
  Place place;
};

struct Block : BlockIndex {
  unsigned count, alive, waiting;
  uint64_t random;
  int predicates;
  std::vector<Fiber> fibers;
  std::vector<unsigned> order;
  void* scheduler_stack_pointer;
  bool failed;
  std::string error;
  const Kernel* kernel;
  void** arguments;
  unsigned char* memory;  // shared memory: the dynamic part first
  size_t dynamic_bytes, used;
  std::vector<Allocation> allocations;
  // One address each to hang happens-before on, for TSan; in turn, so that a fiber that leaves a
  // barrier late does not see what came after it.
  char barriers[2], warps[32][2];
  unsigned barrier_phase, warp_phase[32];
  void* tsan_scheduler;
  const void* scheduler_stack;
  size_t scheduler_stack_bytes;
};

#if defined(EMULATED_ASAN) || defined(EMULATED_TSAN)
constexpr size_t STACK_BYTES = 128 << 10;
#else
constexpr size_t STACK_BYTES = 64 << 10;
#endif
// Shared memory of a block on compute capability 8.0.
constexpr size_t SHARED_LIMIT = 163 << 10;
constexpr size_t RED_ZONE = 128;
constexpr unsigned char RED = 0xA7;
// Room for the red zones between declarations.
constexpr size_t SHARED_ROOM = SHARED_LIMIT + (64 << 10);

Block& running_block();
Fiber& running_fiber();
// Runs all threads of a block to their end, or to the first fault.
void run_block(Block& block);
// Empties shared memory before a block runs, and looks at its red zones afterwards.
void clear_shared(Block& block);
void check_shared(Block& block);
// From a fiber back to the scheduler.
void to_scheduler();
[[noreturn]] void fail(const std::string& what, Place place);
std::string describe(Place place);
}  // namespace emulated
