// GEMM kernel for forward, dgrad and wgrad: tile (tile.cuh) x pass (passes.cuh) x epilogue
// (epilogue.cuh).
#pragma once
#include "epilogue.cuh"
#include "passes.cuh"
#ifdef REAL_IS_FLOAT
#include "plain.cuh"
#else
#include "multiply.cuh"
#endif

// Accumulates the pass's GEMM for the tile at `first_row` and `first_column` over the k-blocks of
// `share`.
template <class T, class Pass>
DEVICE void multiply(Sums<T>& sums, const Pass& pass, Share share, int first_row, int first_column,
                     real* stages) {
  auto from = pass.template operands<T>(share, first_row, first_column);
  using Left = typename Pass::template Left<T>;
  using Right = typename Pass::template Right<T>;
  Loop<T, Left, Right, decltype(from)>(from, stages).run(sums, share.len);
}

// Accumulates two passes of the same extents, one after the other, in the same accumulators.
template <class First, class Second>
struct SumOf : First {
  Second second;
  DEVICE SumOf(const First& first, const Second& second) : First(first), second(second) {}
};
template <class T, class First, class Second>
DEVICE void multiply(Sums<T>& sums, const SumOf<First, Second>& pass, Share share, int first_row,
                     int first_column, real* stages) {
  const First& first = pass;
  multiply(sums, first, share, first_row, first_column, stages);
  multiply(sums, pass.second, pass.second.template share<T>(), first_row, first_column,
           stages);
}

// The body of a kernel: computes tile blockIdx.x of D, columns fastest, and passes it to the
// epilogue; or stores it unchanged to this split's part of `partials`, if that is not null.
template <class T, class Pass, class Epilogue>
DEVICE void gemm(const Pass& pass, float* partials, const Epilogue& epilogue) {
  DYNAMIC_SHARED(memory);
  real* stages = (real*)memory;
  const int column_tiles = ceil_div(pass.columns, T::COLUMNS);
  const int first_row = blockIdx.x / column_tiles * T::ROWS;
  const int first_column = blockIdx.x % column_tiles * T::COLUMNS;
  if (first_row >= pass.rows) return;  // uniform over the block: past the rows in use
  const Corner corner{first_row, first_column, pass.rows, pass.columns};
  const typename Pass::Place place(pass);
  if constexpr (T::PREFETCHES) {
    if (!partials) prefetch_tile<T>(corner, place, epilogue);
  }
  Sums<T> sums;
  sums.clear();
  multiply(sums, pass, pass.template share<T>(), first_row, first_column, stages);
  store_tile(sums, stages, corner, split_of(partials, pass.out_rows, pass.columns), place,
             epilogue);
}
