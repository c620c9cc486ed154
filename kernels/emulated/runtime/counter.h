// Counts what warps ask of shared memory, global memory and tensor cores, at each line of a kernel.
//
// How a request is counted follows NVIDIA's programming guide:
//
//   shared memory   32 banks of 4 bytes. A request of 16 bytes a lane is served a quarter of the
//                   warp at a time, of 8 bytes half of it, of 4 bytes or less all of it. Such a
//                   part takes a pass for each different word that its fullest bank is asked for.
//                   ldmatrix has a part for each 8x8 matrix.
//   global memory   the 32-byte sectors that the lanes touch.
//
// Loads and stores are single instructions of one thread here: the n-th time that a lane comes to a
// line is taken for the same request as the n-th time of the others. Who leaves a line out must do
// so from some time on. Not verified on hardware.
#pragma once
#include "emulated.h"
#include <deque>
#include <vector>

namespace emulated {
// What a line's requests came to. The mirror of `Site` in src/library.rs.
struct Site {
  const char* file;
  int line, operation;
  uint64_t requests;  // instructions of a warp
  uint64_t bytes;     // that lanes asked for
  uint64_t units;     // passes over the banks, or sectors
  uint64_t least;     // that would do: a pass for each part, sectors as full as can be
  uint64_t worst;     // units of one request
};

// A warp's request, as far as its lanes have come to it.
struct Request {
  unsigned came, active;
  uintptr_t at[32];
};

class Counter {
 public:
  // A lane's part of a request: it takes none with 0 bytes, of `lane_bytes` that it could have.
  void lane(Operation operation, Place place, unsigned thread, const void* at, int bytes,
            int lane_bytes);
  // A request of all lanes.
  void warp(Operation operation, Place place, const void* const* at, int lane_bytes);
  // A request that reaches no memory.
  void instruction(Operation operation, Place place);
  // Counts the requests that not all lanes came to, at the end of a block.
  void end_block();
  void add_to(std::vector<Site>& sites) const;

 private:
  struct Queue {  // of a warp
    uint64_t first;  // the request at the front: how often lanes had come before it
    uint64_t reached[32];
    std::deque<Request> open;
  };
  struct Line : Site {
    int lane_bytes;
    std::vector<Queue> warps;
  };
  Line& line(Operation operation, Place place, int lane_bytes);
  static void count(Line& line, const Request& request);

  std::deque<Line> lines_;
};
}  // namespace emulated
