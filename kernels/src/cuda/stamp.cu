// Records the time at which a stream reaches a point in a graph, for timelines.
//
//   time  [1]  uint64  out  nanoseconds of the clock that all multiprocessors share
//
// Launch: one thread of one warp.
// Cost: one word stored; bound by the start of a launch, some 2 us in a graph.
// Numerics: none; it is a clock, and so not deterministic.
// Edge cases: no kernel of a step reads it.
#include "ptx.cuh"

KERNEL(32) stamp(uint64_t* RESTRICT time) {
  if (threadIdx.x == 0) *time = global_timer();
}
