// Question: what do the addresses cost that are made anew for every k-block, in chains of 64-bit
// multiplications? Here each row's address is kept, with a bit for each tap that is inside the map;
// a k-block moves all addresses by one number, that of the next channels, tap or row of taps.
// Places in shared memory are kept too. Prediction: 1.06 times as fast on A100 and 1.08 on H100 for
// 3x3, 1.02 for 1x1. Same bits.
#include "loop.cuh"

struct Pointers : probe::Today {
  static constexpr bool POINTERS = true;
};
PROBE_CONV(probe_pointers, Pointers)
