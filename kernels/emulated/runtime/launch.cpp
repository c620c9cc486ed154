// The C interface: the table of kernels, device memory with red zones, and launches.
#include <memory>  // before CUDA's words are defined: it uses one

#include "counter.h"
#include "runtime.h"
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <sys/mman.h>
#include <thread>

namespace emulated {
static std::map<std::string, Kernel>& kernels() {
  static std::map<std::string, Kernel> table;
  return table;
}
const char* name_where_real_is(const char* real, const char* name) {
  static std::set<std::string> names;  // whose strings stay where they are
  std::string text = name;
  const size_t at = text.find("f16");
  text = at == std::string::npos ? text + "_" + real : text.replace(at, 3, real);
  return names.insert(text).first->c_str();
}
bool add_kernel(const Kernel& kernel) {
  if (!kernels().emplace(kernel.name, kernel).second) {
    fprintf(stderr, "two kernels are called %s\n", kernel.name);
    abort();
  }
  return true;
}

// ---------------------------------------------------------------- device memory
constexpr size_t MEMORY_ALIGNMENT = 256, MEMORY_RED_ZONE = 256;
static size_t whole(size_t bytes) {
  return (bytes + MEMORY_ALIGNMENT - 1) & ~(MEMORY_ALIGNMENT - 1);
}

// What an OS thread keeps from launch to launch.
struct Keep {
  Block block{};
  std::vector<char*> stacks;  // each above a page that nobody may touch
  std::vector<void*> tsan;
  Keep() { block.memory = (unsigned char*)aligned_alloc(1024, SHARED_ROOM); }
  ~Keep() {
    for (char* stack : stacks) {
#ifdef EMULATED_ASAN
      // Red zones outlive the mapping, and the next one here may be a thread's stack.
      ASAN_UNPOISON_MEMORY_REGION(stack, STACK_BYTES);
#endif
      munmap(stack - PAGE, STACK_BYTES + PAGE);
    }
#ifdef EMULATED_TSAN
    for (void* fiber : tsan) __tsan_destroy_fiber(fiber);
#endif
    free(block.memory);
  }
  void add_fiber() {
    char* memory = (char*)mmap(nullptr, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, PAGE, PROT_NONE)) {
      fprintf(stderr, "no memory for the stack of an emulated thread\n");
      abort();
    }
    stacks.push_back(memory + PAGE);
#ifdef EMULATED_TSAN
    tsan.push_back(__tsan_create_fiber(0));
#endif
  }
  static constexpr size_t PAGE = 4096;
};

static void make_fibers(Keep& keep) {
  Block& b = keep.block;
  b.fibers.resize(b.count);
  b.order.resize(b.count);
  while (keep.stacks.size() < b.count) keep.add_fiber();
  for (unsigned i = 0; i < b.count; i++) {
    Fiber& f = b.fibers[i];
    f.linear = f.position = b.order[i] = i;
    f.lane = i % 32;
    f.index = {i % b.threads.x, i / b.threads.x % b.threads.y, i / b.threads.x / b.threads.y};
    f.stack = keep.stacks[i];
#ifdef EMULATED_TSAN
    f.tsan = keep.tsan[i];
#endif
  }
}

struct Grid {
  const Kernel* kernel;
  uint3 blocks, threads;
  size_t dynamic_bytes;
  void** arguments;
  uint64_t seed;
  bool cut_sums, counts;
  size_t os_threads;
  std::mutex sites_lock;
  std::vector<Site> sites;
  // Relaxed: TSan must not take it for an order between blocks.
  std::atomic<bool> failed{false};
};

// The block that runs as the i-th: with a seed, nothing may depend on their order. A third of the
// seeds go backwards, the others in steps that reach every block.
static size_t block_at(size_t i, size_t blocks, uint64_t seed) {
  if (!seed) return i;
  if (seed % 3 == 0) return blocks - 1 - i;
  size_t step = seed % blocks | 1;
  while (std::gcd(step, blocks) != 1) step += 2;
  return (size_t)(((unsigned __int128)i * step + (seed >> 32)) % blocks);
}

// Runs the share of the grid's blocks that the w-th OS thread has, on that thread.
static std::string work(Grid& grid, size_t w) {
  // Behind a pointer: what a library that is loaded late may have for each thread is little.
  static thread_local std::unique_ptr<Keep> kept;
  if (!kept) kept = std::make_unique<Keep>();
  Keep& keep = *kept;
  Block& b = keep.block;
  b.count = grid.threads.x * grid.threads.y * grid.threads.z;
  b.threads = grid.threads;
  b.blocks = grid.blocks;
  b.kernel = grid.kernel;
  b.arguments = grid.arguments;
  b.dynamic_bytes = grid.dynamic_bytes;
  b.cut_sums = grid.cut_sums;
  Counter counter;
  b.counter = grid.counts ? &counter : nullptr;
  make_fibers(keep);
#ifdef EMULATED_TSAN
  b.tsan_scheduler = __tsan_get_current_fiber();
#endif
  const size_t blocks = (size_t)grid.blocks.x * grid.blocks.y * grid.blocks.z;
  std::string error;
  for (size_t i = w; i < blocks && error.empty(); i += grid.os_threads) {
    if (grid.failed.load(std::memory_order_relaxed)) break;
    const size_t k = block_at(i, blocks, grid.seed);
    b.index = {(unsigned)(k % grid.blocks.x), (unsigned)(k / grid.blocks.x % grid.blocks.y),
               (unsigned)(k / grid.blocks.x / grid.blocks.y)};
    b.random = grid.seed ? grid.seed * 0x9E3779B97F4A7C15ull + k + 1 : 0;
    run_block(b);
    if (grid.counts) counter.end_block();
    if (b.failed) {
      error = b.error;
      grid.failed.store(true, std::memory_order_relaxed);
    }
  }
#ifdef EMULATED_ASAN
  ASAN_UNPOISON_MEMORY_REGION(b.memory, SHARED_ROOM);
#endif
  block = nullptr;
  current = nullptr;
  if (grid.counts) {
    const std::lock_guard<std::mutex> lock(grid.sites_lock);
    counter.add_to(grid.sites);
  }
  return error;
}

// Runs all blocks on `os_threads` threads; the first fault, or nothing.
static std::string run_grid(Grid& grid, unsigned os_threads) {
  const size_t blocks = (size_t)grid.blocks.x * grid.blocks.y * grid.blocks.z;
  grid.os_threads = std::min<size_t>(os_threads, blocks);
  std::vector<std::string> errors(grid.os_threads);
  std::vector<std::thread> threads;
  for (size_t w = 1; w < grid.os_threads; w++)
    threads.emplace_back([&, w] { errors[w] = work(grid, w); });
  errors[0] = work(grid, 0);
  for (std::thread& t : threads) t.join();
  for (const std::string& e : errors)
    if (!e.empty()) return e;
  return "";
}

static void answer(char* text, size_t capacity, const std::string& what) {
  snprintf(text, capacity, "%s", what.c_str());
}
}  // namespace emulated

using namespace emulated;

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Names of all kernels, separated by newlines.
EXPORTED const char* emulated_kernels() {
  static std::string names;
  names.clear();
  for (const auto& [name, kernel] : kernels()) names += name + "\n";
  return names.c_str();
}

// Sizes of a kernel's parameters, or -1 if there is no such kernel.
EXPORTED int emulated_parameters(const char* name, const unsigned** sizes) {
  const auto found = kernels().find(name);
  if (found == kernels().end()) return -1;
  *sizes = found->second.sizes;
  return (int)found->second.parameters;
}

// File and line of a kernel's EXPORT.
EXPORTED void emulated_place(const char* name, char* text, size_t capacity) {
  const auto found = kernels().find(name);
  answer(text, capacity, found == kernels().end() ? "" : describe(found->second.place));
}

// The source file of a kernel, as it was given to the compiler.
EXPORTED void emulated_source(const char* name, char* text, size_t capacity) {
  const auto found = kernels().find(name);
  answer(text, capacity, found == kernels().end() ? "" : found->second.place.file);
}

// Device memory, all bits set, with a red zone on each side.
EXPORTED void* emulated_alloc(size_t bytes) {
  const size_t all = whole(bytes) + 2 * MEMORY_RED_ZONE;
  unsigned char* start = (unsigned char*)aligned_alloc(MEMORY_ALIGNMENT, all);
  if (!start) return nullptr;
  memset(start, RED, all);
  memset(start + MEMORY_RED_ZONE, 0xff, bytes);
#ifdef EMULATED_ASAN
  ASAN_POISON_MEMORY_REGION(start, all);
#endif
  return start + MEMORY_RED_ZONE;
}
EXPORTED void emulated_free(void* memory, size_t bytes) {
  unsigned char* start = (unsigned char*)memory - MEMORY_RED_ZONE;
#ifdef EMULATED_ASAN
  ASAN_UNPOISON_MEMORY_REGION(start, whole(bytes) + 2 * MEMORY_RED_ZONE);
#endif
  (void)bytes;
  free(start);
}
// 0 if both red zones are whole, else the distance of the first changed byte from the memory's end
// (positive) or start (negative).
EXPORTED long emulated_red_zone(void* memory, size_t bytes) {
  unsigned char* m = (unsigned char*)memory;
#ifdef EMULATED_ASAN
  (void)bytes, (void)m;
  return 0;  // the sanitizer reports the access itself
#else
  for (size_t i = bytes; i < whole(bytes) + MEMORY_RED_ZONE; i++)
    if (m[i] != RED) return (long)(i - bytes) + 1;
  for (size_t i = 1; i <= MEMORY_RED_ZONE; i++)
    if (*(m - i) != RED) return -(long)i;
  return 0;
#endif
}

// The host's own access to device memory: copies in and out.
EXPORTED void emulated_copy(void* to, const void* from, size_t bytes, void* device,
                            size_t device_bytes) {
#ifdef EMULATED_ASAN
  ASAN_UNPOISON_MEMORY_REGION(device, device_bytes);
#endif
  memcpy(to, from, bytes);
#ifdef EMULATED_ASAN
  ASAN_POISON_MEMORY_REGION(device, device_bytes);
#endif
  (void)device, (void)device_bytes;
}

// Runs a kernel. `spans` are the bytes that it may reach: first byte and length, in turn. With
// `sites` it is counted: at most `site_capacity` of them are given out, and how many there are is
// left in `site_count`.
EXPORTED int emulated_launch(const char* name, const unsigned* blocks, const unsigned* threads,
                             size_t dynamic_bytes, void** arguments, const uint64_t* spans,
                             size_t span_count, uint64_t seed, unsigned os_threads,
                             int cut_sums, Site* sites, size_t site_capacity, size_t* site_count,
                             char* error, size_t capacity) {
  const auto found = kernels().find(name);
  if (found == kernels().end()) {
    answer(error, capacity, "no kernel of this name was compiled");
    return 1;
  }
  Grid grid;
  grid.kernel = &found->second;
  grid.blocks = {blocks[0], blocks[1], blocks[2]};
  grid.threads = {threads[0], threads[1], threads[2]};
  grid.dynamic_bytes = dynamic_bytes;
  grid.arguments = arguments;
  grid.seed = seed;
  grid.cut_sums = cut_sums != 0;
  grid.counts = sites != nullptr;
#ifdef EMULATED_ASAN
  for (size_t i = 0; i < span_count; i++)
    ASAN_UNPOISON_MEMORY_REGION((void*)spans[2 * i], spans[2 * i + 1]);
#endif
  const std::string what = run_grid(grid, os_threads);
#ifdef EMULATED_ASAN
  for (size_t i = 0; i < span_count; i++)
    ASAN_POISON_MEMORY_REGION((void*)spans[2 * i], (spans[2 * i + 1] + 7) & ~7ull);
#endif
  (void)spans, (void)span_count;
  *site_count = grid.sites.size();
  std::copy_n(grid.sites.begin(), std::min(grid.sites.size(), site_capacity), sites);
  answer(error, capacity, what);
  return !what.empty();
}
