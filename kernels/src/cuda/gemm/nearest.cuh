// The epilogue of a forward pass whose residual is a smaller map, read at the nearest position.
#pragma once
#include "conv.cuh"
#include "epilogue.cuh"

// Maps a row of y to a row of the residual: y is [N, P, Q], the residual [N, height, width], and
// position (p, q) reads (p * height / P, q * width / Q), rounded down.
struct Nearest {
  int height, width;
  Divisor lines, columns;  // P and Q
  DEVICE int row(int row) const {
    int p, q, rest;
    const int image = lines.quotient(columns.quotient(row, q), p);
    const int line = lines.quotient(p * height, rest), column = columns.quotient(q * width, rest);
    return (image * height + line) * width + column;
  }
};
static_assert(sizeof(Nearest) == 32, "eight ints");

// Like ActivationRows, but reads the residual at the nearest position.
struct NearestRows {
  ActivationRows all;
  Nearest nearest;

  using Held = ActivationRows::Held;
  using Row = ActivationRows::Row;

  DEVICE Held hold(int column) const { return all.hold(column); }
  DEVICE Row fetch(int row, int column) const { return all.fetch(nearest.row(row), column); }
  DEVICE void prefetch(int row, int column) const { all.prefetch(nearest.row(row), column); }
  DEVICE void operator()(float (&v)[CHUNK], const Held& held, const Row& at, int row,
                         int column) const {
    all(v, held, at, row, column);
  }
};
