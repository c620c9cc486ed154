// Loaders: which 16 bytes of global memory belong where in a stage. They know shapes and padding,
// and nothing of the product. Values outside (padding, tails, images past the count) are zeros that
// are not read. ALIGNED requires channel counts that are multiples of 8, and kernels of at most
// MAX_TAPS rows and columns.
#pragma once
#include "gathered.cuh"
#include "stepped.cuh"

// A if FIRST, else B.
template <bool FIRST, class A, class B>
struct Either {
  using Type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using Type = B;
};

// The operands of the forward pass, at the k-blocks of `share`. `window` as the place of
// WindowRows.
template <bool ALIGNED, class Left, class Right, class Window>
DEVICE auto forward_operands(const half* x, const half* w, const Conv& conv, Share share,
                             int first_row, int first_column, Window window) {
  const Taps taps{conv.kernel_h, conv.kernel_w};
  if constexpr (ALIGNED) {
    const TapWalk walk(taps, conv.channels, share);
    return TapOperands<WindowRows<Left>, FilterRows<Right>>{
        walk, {x, conv.height, conv.width, conv.channels, taps, walk, first_row, window},
        {w, conv, walk, first_column}};
  } else {
    return GatheredTapOperands<GatheredWindowRows<Left>, GatheredFilterRows<Right>>{
        {x, conv.height, conv.width, taps, conv.channels, share.first, first_row, window},
        {w, conv, share.first, first_column}};
  }
}

// The operands of the input's gradient, for the residue class of `y` and `x`. A row of g has
// `pitch` values.
template <bool ALIGNED, class Left, class Right, class Window>
DEVICE auto grad_input_operands(const half* g, const half* w, const Conv& conv, int pitch,
                                const ResidueAxis& y, const ResidueAxis& x, Share share,
                                int first_row, int first_column, Window window) {
  const Taps taps{y.taps, x.taps};
  if constexpr (ALIGNED) {
    const TapWalk walk(taps, conv.filters, share);
    return TapOperands<WindowRows<Left>, FilterColumns<Right>>{
        walk, {g, conv.out_height, conv.out_width, pitch, taps, walk, first_row, window},
        {w, conv, y, x, walk, first_column}};
  } else {
    return GatheredTapOperands<GatheredWindowRows<Left>, GatheredFilterColumns<Right>>{
        {g, conv.out_height, conv.out_width, taps, conv.filters, share.first, first_row, window},
        {w, conv, y, x, share.first, first_column}};
  }
}
