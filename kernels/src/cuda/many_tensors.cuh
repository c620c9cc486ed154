// Elementwise work on many tensors in one launch: each block works on one tensor.
#pragma once
#include "platform.cuh"

constexpr int THREADS = 256;
constexpr int VECTOR = 4;  // floats in a 16-byte load

// The tensor of a block: the last tensor whose first block is not after this block. Past the last
// tensor, first_block holds the number of blocks of the launch. A tensor without blocks has the
// first block of the next tensor.
template <int CAPACITY>
DEVICE int tensor_of(const int (&first_block)[CAPACITY], int block) {
  int low = 0, high = CAPACITY;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (first_block[middle] <= block)
      low = middle;
    else
      high = middle;
  }
  return low;
}
