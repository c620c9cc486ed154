// Question: what does the variants' frame itself cost? No switch is turned, so this is
// conv2d_f16_large but for the split of the reduction, tails of channels, and where sizes are kept.
// Prediction: the baseline's time within 1 %. If not, read every other ratio against this one.
#include "loop.cuh"

PROBE_CONV(probe_control, probe::Today)
