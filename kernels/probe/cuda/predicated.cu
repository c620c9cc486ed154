// Question: is the fill slow because it is a branch? Today the test that there is a k-block left to
// fetch keeps ptxas from mixing copies and addresses into the products, so a warp does one after
// the other. Here every k-block fills, past the end with a source size of 0, which writes zeros and
// reads nothing, and each k16 step has half of the copies. Prediction: 1.04 times as fast for 3x3,
// nothing for layers of two to eight k-blocks. Same bits.
#include "loop.cuh"

struct Predicated : probe::Today {
  static constexpr bool PREDICATED = true;
};
PROBE_CONV(probe_predicated, Predicated)
