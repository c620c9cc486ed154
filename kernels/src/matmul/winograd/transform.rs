//! The transforms of filters, inputs and outputs, without fused multiply-adds.

use std::array::from_fn;
use std::ops::Range;

use super::Place;
use crate::isa::wide;
use crate::matmul::epilogue::PanelEpilogue;
use crate::matmul::grid::Part;

/// Points per tile: 4 x 4.
pub(super) const POINTS: usize = 16;

/// Channels that are transformed together.
pub(super) const LANES: usize = 16;

type Lanes = [f32; LANES];

#[inline(always)]
fn add(a: Lanes, b: Lanes) -> Lanes {
    from_fn(|i| a[i] + b[i])
}

#[inline(always)]
fn sub(a: Lanes, b: Lanes) -> Lanes {
    from_fn(|i| a[i] - b[i])
}

#[inline(always)]
fn times(a: Lanes, factor: f32) -> Lanes {
    from_fn(|i| a[i] * factor)
}

/// `G g`, of three taps.
#[inline(always)]
fn of_filter([a, b, c]: [Lanes; 3]) -> [Lanes; 4] {
    let ends = add(a, c);
    [a, times(add(ends, b), 0.5), times(sub(ends, b), 0.5), c]
}

/// `B^T d`, of four inputs.
#[inline(always)]
fn of_input([a, b, c, d]: [Lanes; 4]) -> [Lanes; 4] {
    [sub(a, c), add(b, c), sub(c, b), sub(b, d)]
}

/// `A^T m`, of four sums.
#[inline(always)]
fn of_sums([a, b, c, d]: [Lanes; 4]) -> [Lanes; 2] {
    [add(add(a, b), c), sub(sub(b, c), d)]
}

/// `A g`, of the gradients of two outputs.
#[inline(always)]
fn of_gradient([a, b]: [Lanes; 2]) -> [Lanes; 4] {
    [a, add(a, b), sub(a, b), times(b, -1.0)]
}

/// `G^T u`, of the sums of four points.
#[inline(always)]
fn of_points([a, b, c, d]: [Lanes; 4]) -> [Lanes; 3] {
    let middle = times(add(b, c), 0.5);
    [add(a, middle), times(sub(b, c), 0.5), add(middle, d)]
}

#[inline(always)]
fn lanes(values: &[f32], at: usize) -> Lanes {
    values.as_chunks::<LANES>().0[at]
}

// Loops over arrays instead of closures: closures called by the standard library are not compiled
// for the instruction set.

/// `LANES` channels of a filter at the 16 points, starting with channel `at` of each tap.
#[inline(always)]
fn points_of_filter(taps: [&[f32]; 9], at: usize, scale: f32) -> [Lanes; POINTS] {
    let mut points = [[0.0; LANES]; POINTS];
    for s in 0..3 {
        let tap = |r: usize| times(lanes(taps[3 * r + s], at), scale);
        let down = of_filter([tap(0), tap(1), tap(2)]);
        for (i, v) in down.into_iter().enumerate() {
            points[4 * i + s] = v;
        }
    }
    for row in points.as_chunks_mut::<4>().0 {
        *row = of_filter([row[0], row[1], row[2]]);
    }
    points
}

/// `LANES` channels of a tile's inputs at the 16 points.
#[inline(always)]
fn points_of_inputs(pixels: &[&[f32]; POINTS], at: usize) -> [Lanes; POINTS] {
    let mut points = [[0.0; LANES]; POINTS];
    for column in 0..4 {
        let d = |row: usize| lanes(pixels[4 * row + column], at);
        let down = of_input([d(0), d(1), d(2), d(3)]);
        for (i, v) in down.into_iter().enumerate() {
            points[4 * i + column] = v;
        }
    }
    for row in points.as_chunks_mut::<4>().0 {
        *row = of_input(*row);
    }
    points
}

/// `LANES` channels of a tile's four outputs, from its sums at the 16 points.
#[inline(always)]
fn outputs_of_sums<const NR: usize>(sums: [&[f32; NR]; POINTS], at: usize) -> [Lanes; 4] {
    let mut rows = [[[0.0; LANES]; 4]; 2];
    for column in 0..4 {
        let m = |row: usize| lanes(sums[4 * row + column], at);
        let [first, second] = of_sums([m(0), m(1), m(2), m(3)]);
        rows[0][column] = first;
        rows[1][column] = second;
    }
    let [[a, b], [c, d]] = [of_sums(rows[0]), of_sums(rows[1])];
    [a, b, c, d]
}

/// `LANES` channels of the gradients of a tile's four outputs at the 16 points.
#[inline(always)]
fn points_of_gradients(pixels: &[&[f32]; 4], at: usize) -> [Lanes; POINTS] {
    let mut points = [[0.0; LANES]; POINTS];
    for column in 0..2 {
        let down = of_gradient([lanes(pixels[column], at), lanes(pixels[2 + column], at)]);
        for (i, v) in down.into_iter().enumerate() {
            points[4 * i + column] = v;
        }
    }
    for row in points.as_chunks_mut::<4>().0 {
        *row = of_gradient([row[0], row[1]]);
    }
    points
}

/// `LANES` channels of nine taps' gradients, from the 16 points' gradients, times `scale`.
#[inline(always)]
fn taps_of_points(points: [&[f32]; POINTS], at: usize, scale: f32) -> [Lanes; 9] {
    let mut rows = [[[0.0; LANES]; 4]; 3];
    for column in 0..4 {
        let u = |row: usize| lanes(points[4 * row + column], at);
        let down = of_points([u(0), u(1), u(2), u(3)]);
        for (row, v) in rows.iter_mut().zip(down) {
            row[column] = v;
        }
    }
    let mut taps = [[0.0; LANES]; 9];
    for (taps, row) in taps.as_chunks_mut::<3>().0.iter_mut().zip(rows) {
        *taps = of_points(row);
        for tap in taps {
            *tap = times(*tap, scale);
        }
    }
    taps
}

/// The `columns` of each tap of a filter of `[3][3][C]`, rotated by 180 degrees if `turned`.
#[inline(always)]
fn taps(from: &[f32], columns: Range<usize>, turned: bool) -> [&[f32]; 9] {
    let channels = from.len() / 9;
    let mut taps = [from; 9];
    for (i, to) in taps.iter_mut().enumerate() {
        let tap = if turned { 8 - i } else { i } * channels;
        *to = &from[tap + columns.start..tap + columns.end];
    }
    taps
}

/// The `COUNT` pixels of the `side` x `side` square whose first pixel is `(row, column)`; `zeros`
/// outside the map.
#[inline(always)]
fn pixels<'a, const COUNT: usize>(
    (x, depth): (&'a [f32], usize),
    [height, width]: [usize; 2],
    (image, row, column): (usize, usize, usize),
    side: usize,
    zeros: &'a [f32],
) -> [&'a [f32]; COUNT] {
    let mut pixels = [&zeros[..depth]; COUNT];
    for (i, pixel) in pixels.iter_mut().enumerate() {
        let (row, column) = (row.wrapping_add(i / side), column.wrapping_add(i % side));
        if row < height && column < width {
            let start = ((image * height + row) * width + column) * depth;
            *pixel = &x[start..start + depth];
        }
    }
    pixels
}

/// The sums at the 16 points of tile `tile` of `count` tiles.
#[inline(always)]
fn sums_of_tile<const NR: usize>(
    sums: &[[f32; NR]],
    count: usize,
    tile: usize,
) -> [&[f32; NR]; POINTS] {
    let mut points = [&sums[tile]; POINTS];
    for (point, to) in points.iter_mut().enumerate() {
        *to = &sums[point * count + tile];
    }
    points
}

wide! {
    /// Transforms `columns` of a filter `[3][3][C]` to rows of `[16][place.1]`, starting at element
    /// `place.0`.
    pub(super) fn filter(
        from: &[f32],
        columns: Range<usize>,
        place: (usize, usize),
        to: &mut [f32],
    ) {
        let taps = taps(from, columns.clone(), false);
        for at in 0..columns.len() / LANES {
            let points = points_of_filter(taps, at, 1.0);
            for (to, point) in to.chunks_exact_mut(place.1).zip(&points) {
                to[place.0 + at * LANES..][..LANES].copy_from_slice(point);
            }
        }
    }
}

wide! {
    /// [`filter`] for a filter that is rotated by 180 degrees and multiplied by `scale`.
    pub(super) fn turned_filter(
        from: &[f32],
        columns: Range<usize>,
        scale: f32,
        place: (usize, usize),
        to: &mut [f32],
    ) {
        let taps = taps(from, columns.clone(), true);
        for at in 0..columns.len() / LANES {
            let points = points_of_filter(taps, at, scale);
            for (to, point) in to.chunks_exact_mut(place.1).zip(&points) {
                to[place.0 + at * LANES..][..LANES].copy_from_slice(point);
            }
        }
    }
}

wide! {
    /// Transforms the 4x4 inputs of `tiles` to `[16][tiles][depth]`. `x.1` is the depth of the
    /// input, `map` its extents and padding; `zeros` are read outside of it.
    pub(super) fn inputs(
        x: (&[f32], usize),
        map: ([usize; 2], usize),
        tiles: &[Place],
        zeros: &[f32],
        to: &mut [f32],
    ) {
        let (depth, (map, pad)) = (x.1, map);
        for (i, tile) in tiles.iter().enumerate() {
            let (row, column) = (tile.row.wrapping_sub(pad), tile.column.wrapping_sub(pad));
            let pixels = pixels(x, map, (tile.image, row, column), 4, zeros);
            for at in 0..depth / LANES {
                let points = points_of_inputs(&pixels, at);
                for (to, point) in to.chunks_exact_mut(tiles.len() * depth).zip(&points) {
                    to[i * depth + at * LANES..][..LANES].copy_from_slice(point);
                }
            }
        }
    }
}

wide! {
    /// Transforms accumulators, `[16][tiles]`, and writes them to columns `place.0` of an output
    /// with `place.1` columns, if they are inside the map of `tiles.1` rows and columns.
    pub(super) fn outputs[const NR](
        epilogue: &PanelEpilogue<'_, NR>,
        sums: &[[f32; NR]],
        tiles: (&[Place], [usize; 2]),
        place: (Range<usize>, usize),
        part: &mut Part<'_>,
    ) {
        let ((tiles, [height, width]), (columns, all)) = (tiles, place);
        let mut y = [[0.0; NR]; 4];
        for (i, tile) in tiles.iter().enumerate() {
            let sums = sums_of_tile(sums, tiles.len(), i);
            for at in 0..NR / LANES {
                for (y, v) in y.iter_mut().zip(&outputs_of_sums(sums, at)) {
                    y[at * LANES..][..LANES].copy_from_slice(v);
                }
            }
            for (output, y) in y.iter().enumerate() {
                let (row, column) = (tile.row + output / 2, tile.column + output % 2);
                if row < height && column < width {
                    let position = (tile.image * height + row) * width + column;
                    let to = part.row(position, columns.clone());
                    epilogue.store(y, to, position * all + columns.start);
                }
            }
        }
    }
}

wide! {
    /// Transforms the gradients of the 2x2 outputs of `tiles` to `[16][tiles][depth]`; `g.1` is
    /// their depth, `map` their extents, and `zeros` are read outside of it.
    pub(super) fn gradients(
        g: (&[f32], usize),
        map: [usize; 2],
        tiles: &[Place],
        zeros: &[f32],
        to: &mut [f32],
    ) {
        let depth = g.1;
        for (i, tile) in tiles.iter().enumerate() {
            let pixels = pixels(g, map, (tile.image, tile.row, tile.column), 2, zeros);
            for at in 0..depth / LANES {
                let points = points_of_gradients(&pixels, at);
                for (to, point) in to.chunks_exact_mut(tiles.len() * depth).zip(&points) {
                    to[i * depth + at * LANES..][..LANES].copy_from_slice(point);
                }
            }
        }
    }
}

wide! {
    /// Transforms sums over tiles, `columns` of a filter at each point, to the gradient of the
    /// filter `[3][3][C]`, times `scale`.
    pub(super) fn filter_gradient(
        points: [&[f32]; POINTS],
        columns: Range<usize>,
        scale: f32,
        to: &mut [f32],
    ) {
        let channels = to.len() / 9;
        for at in 0..columns.len() / LANES {
            let taps = taps_of_points(points, at, scale);
            for (to, tap) in to.chunks_exact_mut(channels).zip(&taps) {
                to[columns.start + at * LANES..][..LANES].copy_from_slice(tap);
            }
        }
    }
}
