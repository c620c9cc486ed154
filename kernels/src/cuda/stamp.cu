// The time at which a stream comes to a place in a graph, for time lines.
//
// stamp: time [1] unsigned long long (out, overwritten): nanoseconds of the clock that all
// multiprocessors share. One thread stores one word; bound by the start of a launch, some 2 us in a
// graph. Not deterministic: it is a clock. No kernel of a step reads it.
#include "ptx.cuh"

KERNEL(32) stamp(uint64_t* RESTRICT time) {
  if (threadIdx.x == 0) *time = global_timer();
}
EXPORT(stamp)
