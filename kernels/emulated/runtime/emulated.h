// CUDA C++ for g++: each thread of a block is a fiber, each block runs on one OS thread.
//
// A kernel source includes this through platform.cuh. The words of CUDA that kernels use are
// defined here in terms of a few calls of the runtime: barrier, warp collective, shared memory.
// What a real device would silently get wrong is reported with file and line: barriers that some
// threads miss, warp operations with lanes that are elsewhere, misaligned copies, deadlocks.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define DEVICE inline
#define KERNEL(threads)                                                                            \
  static_assert((threads) >= 1 && (threads) <= 1024 && (threads) % 32 == 0, "threads of a block"); \
  EMULATED_LINKAGE void
#define KERNEL_BLOCKS(threads, blocks) KERNEL(threads)

// ---------------------------------------------------------------- vector types and fp16
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
};
#define EMULATED_VECTOR(T, N)                                                 \
  struct alignas(2 * sizeof(T)) N##2 { T x, y; };                             \
  struct alignas(sizeof(T) == 8 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; }; \
  static inline N##2 make_##N##2(T x, T y) { return {x, y}; }                 \
  static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATED_VECTOR(float, float)
EMULATED_VECTOR(int, int)
EMULATED_VECTOR(unsigned, uint)
EMULATED_VECTOR(unsigned char, uchar)
struct alignas(16) double2 {
  double x, y;
};
static inline double2 make_double2(double x, double y) { return {x, y}; }

// An fp16 number. One operation in fp32 rounded once is exact for + - * / (24 >= 2 * 11 + 2).
struct __half {
  uint16_t bits;
  __half() = default;
  __half(float value) {
    _Float16 rounded = (_Float16)value;
    memcpy(&bits, &rounded, 2);
  }
  operator float() const {
    _Float16 value;
    memcpy(&value, &bits, 2);
    return (float)value;
  }
};
typedef __half half;
struct alignas(4) __half2 {
  __half x, y;
};
typedef __half2 half2;
static inline float __half2float(half h) { return h; }
static inline half __float2half(float f) { return half(f); }
static inline half __float2half_rn(float f) { return half(f); }
static inline half2 __floats2half2_rn(float a, float b) { return {half(a), half(b)}; }
static inline float2 __half22float2(half2 h) { return {(float)h.x, (float)h.y}; }
static inline half2 __halves2half2(half a, half b) { return {a, b}; }
static inline float __low2float(half2 h) { return h.x; }
static inline float __high2float(half2 h) { return h.y; }
static inline half __low2half(half2 h) { return h.x; }
static inline half __high2half(half2 h) { return h.y; }
static inline half __ushort_as_half(unsigned short u) {
  half h;
  h.bits = u;
  return h;
}
static inline unsigned short __half_as_ushort(half h) { return h.bits; }

// ---------------------------------------------------------------- arithmetic
template <class T>
static inline T __ldg(const T* p) {
  return *p;
}
static inline int __float_as_int(float f) {
  int i;
  memcpy(&i, &f, 4);
  return i;
}
static inline unsigned __float_as_uint(float f) {
  unsigned i;
  memcpy(&i, &f, 4);
  return i;
}
static inline float __int_as_float(int i) {
  float f;
  memcpy(&f, &i, 4);
  return f;
}
static inline float __uint_as_float(unsigned i) {
  float f;
  memcpy(&f, &i, 4);
  return f;
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline int __float2int_rn(float f) { return (int)nearbyintf(f); }
static inline int __float2int_rd(float f) { return (int)floorf(f); }
static inline int __float2int_rz(float f) { return (int)f; }
#define EMULATED_MIN_MAX(T)                               \
  static inline T min(T a, T b) { return b < a ? b : a; } \
  static inline T max(T a, T b) { return a < b ? b : a; }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long long)
EMULATED_MIN_MAX(unsigned long long)
// As CUDA's: a NaN loses against a number.
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }

// ---------------------------------------------------------------- the running block
namespace emulated {
struct Place {
  const char* file;
  int line;
};
struct Lanes;
// What a warp collective does once all its lanes have come.
typedef void (*Meeting)(const Lanes&, const void* parameter);

struct Thread {
  uint3 index;
  unsigned linear, lane;
};
class Counter;
struct BlockIndex {
  uint3 index, threads, blocks;
  Counter* counter;  // null unless the launch is counted
};
extern __attribute__((tls_model("initial-exec"))) __thread Thread* current;
extern __attribute__((tls_model("initial-exec"))) __thread BlockIndex* block;

// All threads of the block meet. Returns how many came with `predicate`.
int barrier(int predicate, Place place, int site);
// All lanes of `mask` meet; the last to come runs `meeting`, then all go on.
void collective(unsigned mask, const void* in, void* out, Meeting meeting, const void* parameter,
                Place place);
// Shared memory of the block for the declaration `key`, aligned to 128 bytes.
void* shared(const void* key, size_t bytes, Place place);
unsigned char* dynamic_shared();
[[noreturn]] void fail(const char* what, Place place);

// What a counted launch counts. The mirror of `Operation` in src/counted.rs.
enum Operation {
  MMA,
  LDMATRIX,
  COPY_TO_SHARED,
  COPY_FROM_GLOBAL,
  LOAD_SHARED,
  STORE_SHARED,
  LOAD_GLOBAL,
  STORE_GLOBAL
};
// What a lane, a warp, or an instruction of a warp without memory asks for: counter.h.
void count_lane(Operation operation, Place place, const void* at, int bytes, int lane_bytes);
void count_warp(Operation operation, Place place, const void* const* at, int lane_bytes);
void count_instruction(Operation operation, Place place);
inline void count(Operation operation, const void* at, int bytes, Place place) {
  if (block->counter) count_lane(operation, place, at, bytes, bytes);
}

// The operands of a warp collective, lane by lane.
struct Lanes {
  const void* in_[32];
  void* out_[32];
  unsigned count, mask;
  bool has(unsigned lane) const { return lane < count && (mask >> lane & 1); }
  template <class T>
  const T& in(unsigned lane) const {
    return *(const T*)in_[lane];
  }
  template <class T>
  T& out(unsigned lane) const {
    return *(T*)out_[lane];
  }
};

enum Direction { FROM, DOWN, UP, XOR };
struct Shuffle {
  int argument, width;
};
template <class T>
struct ShuffleIn {
  T value;
  Shuffle how;
};
template <class T, Direction D>
void shuffle_meeting(const Lanes& lanes, const void*) {
  for (unsigned l = 0; l < lanes.count; l++) {
    if (!lanes.has(l)) continue;
    const Shuffle how = lanes.in<ShuffleIn<T>>(l).how;
    const int width = how.width, base = (int)l & ~(width - 1);
    int from = (int)l;
    if (D == FROM) from = base + (how.argument & (width - 1));
    if (D == DOWN && (int)l + how.argument < base + width) from = (int)l + how.argument;
    if (D == UP && (int)l - how.argument >= base) from = (int)l - how.argument;
    if (D == XOR && ((int)l ^ how.argument) < base + width) from = (int)l ^ how.argument;
    // A value from a lane that takes no part is undefined: all bits set.
    if (lanes.has((unsigned)from))
      lanes.out<T>(l) = lanes.in<ShuffleIn<T>>((unsigned)from).value;
    else
      memset((void*)&lanes.out<T>(l), 0xff, sizeof(T));
  }
}
template <Direction D, class T>
inline T shuffle(Place place, unsigned mask, T value, int argument, int width = 32) {
  ShuffleIn<T> in{value, {argument, width}};
  T out;
  collective(mask, &in, &out, shuffle_meeting<T, D>, nullptr, place);
  return out;
}
unsigned ballot(unsigned mask, bool predicate, Place place);
template <class T>
void match_meeting(const Lanes& lanes, const void*) {
  for (unsigned l = 0; l < lanes.count; l++) {
    if (!lanes.has(l)) continue;
    unsigned same = 0;
    for (unsigned k = 0; k < lanes.count; k++)
      if (lanes.has(k) && lanes.in<T>(k) == lanes.in<T>(l)) same |= 1u << k;
    lanes.out<unsigned>(l) = same;
  }
}
template <class T>
inline unsigned match_any(Place place, unsigned mask, T value) {
  unsigned out;
  collective(mask, &value, &out, match_meeting<T>, nullptr, place);
  return out;
}
void sync_warp(Place place, unsigned mask = 0xffffffffu);
unsigned active_mask();

void copy_async_16(const char* file, int line, void* to, const void* from, int valid = 16);
void copy_async_commit();
void copy_async_wait(int pending);
void load_matrix_x4(unsigned (&r)[4], const void* row, bool transposed, const char* file, int line);
void multiply_16x8x16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                      const char* file, int line);
void multiply_16x8x8_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                          const char* file, int line);
inline unsigned to_tf32(float value) {
  const unsigned bits = __float_as_uint(value);
  // Half of the last bit that is kept; infinity and NaN stay.
  return (bits >> 23 & 0xff) == 0xff ? bits & ~0x1fffu : (bits + 0x1000u) & ~0x1fffu;
}
uint64_t global_timer();

// ---------------------------------------------------------------- atomics on integers
template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
template <class T, class F>
inline T modify(T* p, F change) {
  static_assert(std::is_integral_v<T>, "no float atomics: their order would decide the bits");
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, change(old), true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

// ---------------------------------------------------------------- launches
typedef void (*Call)(void (*kernel)(), void** arguments);
struct Kernel {
  const char* name;
  void (*function)();
  Call call;
  unsigned parameters;
  const unsigned* sizes;
  Place place;
};
bool add_kernel(const Kernel& kernel);
// The name of a kernel where `real` is this: in place of f16, or behind it.
const char* name_where_real_is(const char* real, const char* name);
template <class... A, size_t... I>
void call_with(void (*function)(), void** arguments, std::index_sequence<I...>) {
  ((void (*)(A...))function)(*(std::remove_cv_t<A>*)arguments[I]...);
}
template <class... A>
struct Signature {
  static void call(void (*function)(), void** arguments) {
    call_with<A...>(function, arguments, std::index_sequence_for<A...>{});
  }
  static inline const unsigned sizes[sizeof...(A) + 1] = {(unsigned)sizeof(A)..., 0};
};
template <class... A>
bool add(const char* name, void (*function)(A...), Place place) {
  return add_kernel({name, (void (*)())function, Signature<A...>::call, sizeof...(A),
                     Signature<A...>::sizes, place});
}
}  // namespace emulated

#define EMULATED_HERE (::emulated::Place{__FILE__, __LINE__})
#ifdef EMULATED_REAL
// The source is compiled once more, in a namespace: see build.rs.
#define EMULATED_LINKAGE
#define EMULATED_NAME(kernel) ::emulated::name_where_real_is(EMULATED_REAL, #kernel)
#else
#define EMULATED_LINKAGE extern "C"
#define EMULATED_NAME(kernel) #kernel
#endif
#define EXPORT(kernel) \
  static const bool exported_##kernel = \
      ::emulated::add(EMULATED_NAME(kernel), kernel, EMULATED_HERE);
#define SHARED(T, name, count)      \
  static const char name##_key = 0; \
  T* const name = (T*)::emulated::shared(&name##_key, sizeof(T) * (count), EMULATED_HERE)
#define SHARED_2D(T, name, rows, columns)                                                    \
  static const char name##_key = 0;                                                          \
  T(*const name)                                                                             \
  [columns] = (T(*)[columns])::emulated::shared(&name##_key, sizeof(T) * (rows) * (columns), \
                                                EMULATED_HERE)
#define DYNAMIC_SHARED(name) unsigned char* const name = ::emulated::dynamic_shared()

#define threadIdx (::emulated::current->index)
#define blockIdx (::emulated::block->index)
#define blockDim (::emulated::block->threads)
#define gridDim (::emulated::block->blocks)
#define warpSize 32
#define __syncthreads() ((void)::emulated::barrier(0, EMULATED_HERE, __COUNTER__))
#define __syncthreads_count(p) (::emulated::barrier((p) != 0, EMULATED_HERE, __COUNTER__))
#define __syncthreads_or(p) (::emulated::barrier((p) != 0, EMULATED_HERE, __COUNTER__) != 0)
#define __shfl_sync(...) (::emulated::shuffle<::emulated::FROM>(EMULATED_HERE, __VA_ARGS__))
#define __shfl_down_sync(...) (::emulated::shuffle<::emulated::DOWN>(EMULATED_HERE, __VA_ARGS__))
#define __shfl_up_sync(...) (::emulated::shuffle<::emulated::UP>(EMULATED_HERE, __VA_ARGS__))
#define __shfl_xor_sync(...) (::emulated::shuffle<::emulated::XOR>(EMULATED_HERE, __VA_ARGS__))
#define __ballot_sync(mask, p) (::emulated::ballot(mask, (p) != 0, EMULATED_HERE))
#define __any_sync(mask, p) (__ballot_sync(mask, p) != 0)
#define __all_sync(mask, p) (__ballot_sync(mask, !(p)) == 0)
#define __match_any_sync(mask, value) (::emulated::match_any(EMULATED_HERE, mask, value))
#define __syncwarp(...) (::emulated::sync_warp(EMULATED_HERE __VA_OPT__(, ) __VA_ARGS__))
#define __activemask() (::emulated::active_mask())
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <class T>
static inline T atomicAdd(T* p, std::common_type_t<T> v) {
  return ::emulated::modify(p, [v](T old) { return (T)(old + v); });
}
template <class T>
static inline T atomicMax(T* p, std::common_type_t<T> v) {
  return ::emulated::modify(p, [v](T old) { return old < v ? v : old; });
}
template <class T>
static inline T atomicMin(T* p, std::common_type_t<T> v) {
  return ::emulated::modify(p, [v](T old) { return v < old ? v : old; });
}
template <class T>
static inline T atomicOr(T* p, std::common_type_t<T> v) {
  return ::emulated::modify(p, [v](T old) { return (T)(old | v); });
}
template <class T>
static inline T atomicAnd(T* p, std::common_type_t<T> v) {
  return ::emulated::modify(p, [v](T old) { return (T)(old & v); });
}
template <class T>
static inline T atomicXor(T* p, std::common_type_t<T> v) {
  return ::emulated::modify(p, [v](T old) { return (T)(old ^ v); });
}
template <class T>
static inline T atomicExch(T* p, std::common_type_t<T> v) {
  return ::emulated::modify(p, [v](T) { return v; });
}
template <class T>
static inline T atomicCAS(T* p, std::common_type_t<T> compare, std::common_type_t<T> v) {
  __atomic_compare_exchange_n(p, &compare, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return compare;
}
