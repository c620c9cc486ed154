// Epilogues: process the accumulators and store them. Accumulators pass through shared memory, so
// that a thread has eight columns of a row and writes 16 bytes at a time.
//
// An epilogue functor has four parts, so that inputs are read only once, or early:
//
//   Held hold(int column)               values of eight columns, the same for each row
//   Row fetch(int row, int column)      values of a row, read before its accumulators
//   void operator()(float (&v)[CHUNK], const Held&, const Row&, int row, int column)
//                                       computes v from accumulators and these, stores it
//   void prefetch(int row, int column)  prefetches inputs of 64 columns of a row into L2
//
// They are called only for rows in use and columns that exist.
#pragma once
#include "real.cuh"
#include "tile.cuh"

// Eight fp32 values of a row from column `column` of `columns`, zero past the end. Vector loads if
// rows are multiples of 16 bytes.
DEVICE void load_columns(float (&v)[CHUNK], const float* row, int column, int columns) {
  if (columns % CHUNK == 0) {
    *(float4*)&v[0] = *(const float4*)(row + column);
    *(float4*)&v[4] = *(const float4*)(row + column + 4);
  } else {
#pragma unroll
    for (int e = 0; e < CHUNK; e++)
      v[e] = column + e < columns ? row[column + e] : 0.0f;
  }
}
DEVICE void store_columns(float* row, const float (&v)[CHUNK], int column, int columns) {
  if (columns % CHUNK == 0) {
    *(float4*)(row + column) = make_float4(v[0], v[1], v[2], v[3]);
    *(float4*)(row + column + 4) = make_float4(v[4], v[5], v[6], v[7]);
  } else {
#pragma unroll
    for (int e = 0; e < CHUNK; e++)
      if (column + e < columns) row[column + e] = v[e];
  }
}
DEVICE void store_columns(half* row, const float (&v)[CHUNK], int column, int columns) {
  if (columns % CHUNK == 0) {
    uint4 words;
    half* halves = (half*)&words;
#pragma unroll
    for (int e = 0; e < CHUNK; e++) halves[e] = __float2half_rn(v[e]);
    *(uint4*)(row + column) = words;
  } else {
#pragma unroll
    for (int e = 0; e < CHUNK; e++)
      if (column + e < columns) row[column + e] = __float2half_rn(v[e]);
  }
}

// Eight reals in memory layout: an operand that is read long before it is needed.
struct Reals {
  Real8 words;
  DEVICE float value(int e) const { return to_float(((const real*)&words)[e]); }
};
DEVICE Reals all_reals(real value) {
#ifdef REAL_IS_FLOAT
  return {{{value, value, value, value, value, value, value, value}}};
#else
  const unsigned bits = __half_as_ushort(value), pair = bits << 16 | bits;
  return {make_uint4(pair, pair, pair, pair)};
#endif
}
// Eight reals of a row from column `column` of `columns`, like `load_columns`.
DEVICE Reals load_reals(const real* row, int column, int columns) {
  if (columns % CHUNK == 0) return {*(const Real8*)(row + column)};
  Reals reals = all_reals(real_of(0.0f, 0));
  real* values = (real*)&reals.words;
#pragma unroll
  for (int e = 0; e < CHUNK; e++)
    if (column + e < columns) values[e] = row[column + e];
  return reals;
}

// Offset of the byte with the sign bits of eight columns of a row: the bytes of four rows of 64
// columns are contiguous, as in src/signs.rs.
DEVICE int64_t place_of_signs(int row, int column, int columns) {
  const unsigned r = row, c = column;
  return ((int64_t)(r / 4) * (columns / 64) + c / 64) * 32 + r % 4 * 8 + c % 64 / CHUNK;
}

// y = relu(acc * scale + bias + residual) in reals, each part if present, and its sign bits. An
// absent term is -0, the exact neutral element of addition, so that the loop has no branch.
struct ActivationRows {
  real* y;
  const float *scale, *bias;  // per column
  const real* residual;       // [rows, columns], like y
  int columns, relu;
  unsigned char* signs = nullptr;  // of y

  struct Held {
    float scale[CHUNK], bias[CHUNK];
    float least;  // lower bound: smaller values become 0
  };
  using Row = Reals;  // the residual's

  DEVICE Held hold(int column) const {
    Held held;
#pragma unroll
    for (int e = 0; e < CHUNK; e++) held.scale[e] = 1.0f, held.bias[e] = -0.0f;
    held.least = relu ? 0.0f : -INFINITY;
    if (scale) load_columns(held.scale, scale, column, columns);
    if (bias) load_columns(held.bias, bias, column, columns);
    return held;
  }
  DEVICE Row fetch(int row, int column) const {
    if (residual) return load_reals(residual + (int64_t)row * columns, column, columns);
    return all_reals(real_of(-0.0f, 0x8000));
  }
  DEVICE void prefetch(int row, int column) const {
    if (residual) ::prefetch(residual + (int64_t)row * columns + column);
  }
  DEVICE void operator()(float (&v)[CHUNK], const Held& held, const Row& other, int row,
                         int column) const {
#pragma unroll
    for (int e = 0; e < CHUNK; e++) {
      v[e] = v[e] * held.scale[e] + held.bias[e] + other.value(e);
      // Not max(), so that NaN is preserved.
      if (v[e] < held.least) v[e] = 0.0f;
    }
    if (signs) {
      // Values up to 2^-25, half of the smallest subnormal fp16, round to 0.
      constexpr float VANISHES = sizeof(real) == 2 ? 0x1p-25f : 0.0f;
      unsigned bits = 0;
#pragma unroll
      for (int e = 0; e < CHUNK; e++) bits |= (v[e] > VANISHES ? 1u : 0u) << e;
      signs[place_of_signs(row, column, columns)] = (unsigned char)bits;
    }
    store_columns(y + (int64_t)row * columns, v, column, columns);
  }
};

// dw = acc * scale in fp32, with a scale per row.
struct WeightRows {
  float* dw;
  const float* scale;
  int columns;

  struct Held {};
  using Row = float;  // the scale

  DEVICE Held hold(int) const { return {}; }
  DEVICE Row fetch(int row, int) const { return scale ? scale[row] : 1.0f; }
  DEVICE void prefetch(int, int) const {}
  DEVICE void operator()(float (&v)[CHUNK], const Held&, Row factor, int row, int column) const {
#pragma unroll
    for (int e = 0; e < CHUNK; e++) v[e] *= factor;
    store_columns(dw + (int64_t)row * columns, v, column, columns);
  }
};

// The partial sums [rows, columns] of a split, unchanged.
struct PartialRows {
  float* partials;
  int columns;

  struct Held {};
  struct Row {};

  DEVICE Held hold(int) const { return {}; }
  DEVICE Row fetch(int, int) const { return {}; }
  DEVICE void operator()(float (&v)[CHUNK], const Held&, const Row&, int row, int column) const {
    store_columns(partials + (int64_t)row * columns, v, column, columns);
  }
};

// A block's tile of D: its first row and column, and the extents of D.
struct Corner {
  int first_row, first_column, rows, columns;
  template <class T>
  DEVICE bool is_full() const {
    constexpr bool FLOATS = sizeof(real) == sizeof(float);  // float uses only the general path
    return !FLOATS && first_row + T::ROWS <= rows && first_column + T::COLUMNS <= columns &&
           columns % CHUNK == 0;
  }
};

// Passes a block's tile of accumulators to `epilogue`, in slices of 16 rows and at most 64 columns
// per warp. For a FULL tile, no bounds are checked, and all lines of a slice are read at once, one
// slice ahead if the tile allows it; otherwise, the code is kept small. `place(row)` maps a row of
// D to a row of the output.
template <bool FULL, class T, class Place, class Epilogue>
DEVICE void store_rows(const Sums<T>& sums, real* stages, const Corner& d, Place place,
                       const Epilogue& epilogue) {
  // Eight floats of padding put the four lines that are written at once in different banks.
  constexpr int WIDTH = T::WARP_COLUMNS < 64 ? T::WARP_COLUMNS : 64, PITCH = WIDTH + 8;
  constexpr int LANES = WIDTH / CHUNK, SLICES = Sums<T>::ROWS * (T::WARP_COLUMNS / WIDTH);
  constexpr int LINES = 32 / LANES, TURNS = 16 / LINES;  // lines per turn, turns per slice
  constexpr int BUFFERS = T::SLICES_AHEAD + 1;
  static_assert(T::THREADS / 32 * 16 * PITCH * 2 <= T::STAGES * T::STAGE,
                "the warps' slices fit the stages");
  const int lane = threadIdx.x % 32, line = lane / LANES, own_column = lane % LANES * CHUNK;
  float* slice = (float*)stages + threadIdx.x / 32 * (16 * PITCH);
  const int top = d.first_row + T::warp_row() + line;
  const int left = d.first_column + T::warp_column() + own_column;
  auto row_of = [&](int i, int turn) {
    return top + i % Sums<T>::ROWS * T::FRAGMENTS_APART + turn * LINES;
  };
  auto column_of = [&](int i) { return left + i / Sums<T>::ROWS * WIDTH; };

  struct Reads {
    int row;  // of the output
    typename Epilogue::Row other;
  } ahead[BUFFERS][TURNS];
  auto fetch = [&](Reads& at, int i, int turn) {
    at.row = place(row_of(i, turn));
    at.other = epilogue.fetch(at.row, column_of(i));
  };
  auto fetch_slice = [&](int i) {
#pragma unroll
    for (int turn = 0; FULL && turn < TURNS; turn++) fetch(ahead[i % BUFFERS][turn], i, turn);
  };
  typename Epilogue::Held held{};
  if (T::SLICES_AHEAD && (FULL || left < d.columns)) held = epilogue.hold(left);
  if (T::SLICES_AHEAD) fetch_slice(0);
#pragma unroll
  for (int i = 0; i < SLICES; i++) {
    const int column = column_of(i);
    auto hold = [&] {
      if (i % Sums<T>::ROWS == 0 && (FULL || column < d.columns)) held = epilogue.hold(column);
    };
    if (T::SLICES_AHEAD && i > 0) hold();
    if (T::SLICES_AHEAD && i + 1 < SLICES) fetch_slice(i + 1);
#pragma unroll
    for (int j = 0; j < WIDTH / 8; j++) {
      float* to = slice + lane / 4 * PITCH + j * 8 + lane % 4 * 2;
      const float(&of)[4] = sums.of[i % Sums<T>::ROWS][i / Sums<T>::ROWS * (WIDTH / 8) + j];
      *(float2*)to = make_float2(of[0], of[1]);
      *(float2*)(to + 8 * PITCH) = make_float2(of[2], of[3]);
    }
    if (!T::SLICES_AHEAD) hold(), fetch_slice(i);
    __syncwarp();
    auto store = [&](const Reads& at, int turn) {
      const float* from = slice + (turn * LINES + line) * PITCH + own_column;
      float v[CHUNK];
      *(float4*)&v[0] = *(const float4*)from;
      *(float4*)&v[4] = *(const float4*)(from + 4);
      epilogue(v, held, at.other, at.row, column);
    };
    if constexpr (FULL) {
#pragma unroll
      for (int turn = 0; turn < TURNS; turn++) store(ahead[i % BUFFERS][turn], turn);
    } else {
#pragma unroll 1
      for (int turn = 0; turn < TURNS; turn++) {
        if (row_of(i, turn) >= d.rows || column >= d.columns) continue;
        Reads at;
        fetch(at, i, turn);
        store(at, turn);
      }
    }
    __syncwarp();
  }
}

// Prefetches the inputs of `epilogue` for a block's tile into L2 during the main loop.
template <class T, class Place, class Epilogue>
DEVICE void prefetch_tile(const Corner& d, Place place, const Epilogue& epilogue) {
  const int row = d.first_row + threadIdx.x;
  static_assert(T::ROWS <= T::THREADS, "a thread for each row");
  if (threadIdx.x >= T::ROWS || row >= d.rows) return;
#pragma unroll
  for (int column = 0; column < T::COLUMNS; column += 64)
    if (d.first_column + column < d.columns) epilogue.prefetch(place(row), d.first_column + column);
}

// Stores a block's tile of accumulators: through `epilogue`, or unchanged to this split's part of
// `partials`, if it is not null. `place`: see `store_rows`.
template <class T, class Place, class Epilogue>
DEVICE void store_tile(const Sums<T>& sums, real* stages, const Corner& d, float* partials,
                       Place place, const Epilogue& epilogue) {
  if (partials) {
    store_rows<false>(sums, stages, d, place, PartialRows{partials, d.columns});
  } else if (d.is_full<T>()) {
    store_rows<true>(sums, stages, d, place, epilogue);
  } else {
    store_rows<false>(sums, stages, d, place, epilogue);
  }
}

// The partial sums of split blockIdx.z in [gridDim.z, rows, columns]; null if `partials` is null.
DEVICE float* split_of(float* partials, int rows, int columns) {
  return partials ? partials + (int64_t)blockIdx.z * rows * columns : nullptr;
}

// Sums the splits [splits, rows, columns] of the first `used_rows` rows in order: one thread per
// eight columns of a row. Each thread issues the epilogue's loads before its first sum, and loads
// four splits at a time.
template <class Epilogue>
DEVICE void reduce_splits(const float* partials, int splits, int rows, int columns, int used_rows,
                          const Epilogue& epilogue) {
  const int per_row = ceil_div(columns, CHUNK);
  const int64_t item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= (int64_t)used_rows * per_row) return;
  const int row = (int)(item / per_row), column = (int)(item % per_row) * CHUNK;
  const typename Epilogue::Held held = epilogue.hold(column);
  const typename Epilogue::Row other = epilogue.fetch(row, column);
  const int64_t split_len = (int64_t)rows * columns;
  const float* from = partials + (int64_t)row * columns;
  float v[CHUNK] = {};
#pragma unroll 4
  for (int split = 0; split < splits; split++, from += split_len) {
    float part[CHUNK];
    load_columns(part, from, column, columns);
#pragma unroll
    for (int e = 0; e < CHUNK; e++) v[e] += part[e];
  }
  epilogue(v, held, other, row, column);
}
