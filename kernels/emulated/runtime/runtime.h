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
#ifdef EMULATED_TSAN  // set by build.rs: this part is not instrumented itself
#include <sanitizer/tsan_interface.h>
#endif

namespace emulated {
enum class State : uint8_t { FRESH, RUNS, AT_BARRIER, AT_WARP, DONE };

// An asynchronous copy happens when it is waited for: who forgets to wait reads what was there. In
// a random order half of the copies happen at once: who fills a place too early spoils what others
// read there.
struct AsyncCopy {
  void* to;
  const void* from;
  int valid, group;
  Place place;
  bool landed;
};

// A thread of the block. What every switch needs lies together in its first cache lines.
struct alignas(64) Fiber : Thread {
  State state;
  unsigned position;  // in the order in which the threads of the block run
  unsigned mask;
  Meeting meeting;
  const void* in;
  void* out;
  void* stack_pointer;
  char* stack;
  Place place;
  int predicate, site, group;
  void* tsan;
  std::vector<AsyncCopy> copies;
};

// Lanes of a warp that wait in a collective, and those that have returned.
struct Warp {
  unsigned arrived, done;
};

struct Allocation {
  const void* key;
  size_t offset, bytes;
  Place place;
};

// Addresses to hang happens-before on, for TSan. Those of barriers and warps come in turn, so that
// a thread that leaves one late does not see what came after it.
struct Order {
  char start, end, barriers[2], warps[32][32][2];
  unsigned barrier_phase, warp_phase[32][32];
};

struct Block : BlockIndex {
  unsigned count, alive, waiting, cursor;
  uint64_t random;  // 0: threads run by their index
  int predicates;
  uint32_t ready[32];  // by position: who can go on
  Warp warps[32];
  std::vector<Fiber> fibers;
  std::vector<unsigned> order;  // the thread at each position
  void* scheduler_stack_pointer;
  bool failed;
  bool cut_sums;  // products are summed as tensor cores do
  std::string error;
  const Kernel* kernel;
  void** arguments;
  unsigned char* memory;  // shared memory: the dynamic part first
  size_t dynamic_bytes, used;
  std::vector<Allocation> allocations;
#ifdef EMULATED_TSAN
  Order happens_before;
  void* tsan_scheduler;
#endif
#ifdef EMULATED_ASAN
  const void* scheduler_stack;
  size_t scheduler_stack_bytes;
#endif
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

inline Block& running_block() { return *static_cast<Block*>(block); }
inline Fiber& running_fiber() { return *static_cast<Fiber*>(current); }
// Runs all threads of a block to their end, or to the first fault.
void run_block(Block& block);
void copy_16(void* to, const void* from, int valid);
uint64_t next_random(Block& block);
// Empties shared memory before a block runs, and looks at its red zones afterwards.
void clear_shared(Block& block);
void check_shared(Block& block);
// The running thread stops here until it is ready again; others run.
void wait_until_ready();
// Whether the thread at a position can run.
inline void set_ready(Block& b, unsigned position) {
  b.ready[position / 32] |= 1u << position % 32;
}
inline void clear_ready(Block& b, unsigned position) {
  b.ready[position / 32] &= ~(1u << position % 32);
}
[[noreturn]] void fail(const std::string& what, Place place);
std::string describe(Place place);
}  // namespace emulated
