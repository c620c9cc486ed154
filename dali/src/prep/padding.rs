//! Which padded shapes waste least: training pads images to one of K shapes per orientation.
//!
//! An image is scaled to a short side of `min_size`, or less if its long side would exceed
//! `max_size`, then padded to a multiple of 32. All K shapes share the short side; the same K long
//! sides serve landscape and portrait.

/// Padded sides are multiples of the coarsest stride of the feature pyramid.
pub const SIDE_MULTIPLE: u32 = 32;
/// More shapes than this save too little to be worth a graph each.
pub const MAX_SHAPES: usize = 3;

/// The best long sides for one number of shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct PaddingPlan {
    /// Padded short side, in pixels.
    pub short_side: u32,
    /// Padded long sides, in pixels, ascending; a landscape and a portrait shape each.
    pub long_sides: Vec<u32>,
    /// Share of the padded pixels that is padding, 0 to 1.
    pub wasted: f64,
}

/// The best plan for each number of shapes, 1 to [`MAX_SHAPES`]; none without images.
///
/// `sizes` are (height, width) of the source images; `min_size` and `max_size` as in training.
pub fn plans(sizes: &[(u32, u32)], min_size: u32, max_size: u32) -> Vec<PaddingPlan> {
    if sizes.is_empty() {
        return Vec::new();
    }
    let short_side = min_size.next_multiple_of(SIDE_MULTIPLE);
    let scaled: Vec<(u32, u32)> =
        sizes.iter().map(|&(height, width)| scale(height, width, min_size, max_size)).collect();
    let area: f64 = scaled.iter().map(|&(short, long)| f64::from(short) * f64::from(long)).sum();
    let histogram = long_side_histogram(&scaled);
    (1..=MAX_SHAPES.min(histogram.len()))
        .map(|num_shapes| {
            let (long_sides, padded) = best_long_sides(&histogram, num_shapes);
            let padded = padded as f64 * f64::from(short_side);
            PaddingPlan { short_side, long_sides, wasted: 1.0 - area / padded }
        })
        .collect()
}

/// Short and long side after the resize.
fn scale(height: u32, width: u32, min_size: u32, max_size: u32) -> (u32, u32) {
    let (short, long) = (f64::from(height.min(width)), f64::from(height.max(width)));
    let factor = (f64::from(min_size) / short).min(f64::from(max_size) / long);
    ((short * factor).floor() as u32, (long * factor).floor() as u32)
}

/// (padded long side, images), ascending.
fn long_side_histogram(scaled: &[(u32, u32)]) -> Vec<(u32, u64)> {
    let mut counts = std::collections::BTreeMap::new();
    for &(_, long) in scaled {
        *counts.entry(long.max(1).next_multiple_of(SIDE_MULTIPLE)).or_insert(0u64) += 1;
    }
    counts.into_iter().collect()
}

/// The `num_shapes` long sides of the least total padded length, and that length.
///
/// Only sides that occur can be best: a longer one could shrink to the next that occurs. The
/// largest is always needed. Cut points are found by dynamic programming: `best[j]` is the least
/// length that holds the first `j` sides with the shapes used so far.
fn best_long_sides(histogram: &[(u32, u64)], num_shapes: usize) -> (Vec<u32>, u64) {
    let num_sides = histogram.len();
    let cost = |from: usize, to: usize| {
        let images: u64 = histogram[from..to].iter().map(|&(_, images)| images).sum();
        images * u64::from(histogram[to - 1].0)
    };
    let mut best: Vec<(u64, Vec<u32>)> =
        (1..=num_sides).map(|to| (cost(0, to), vec![histogram[to - 1].0])).collect();
    for shapes in 2..=num_shapes {
        let extended = (shapes..=num_sides).map(|to| {
            let candidates = (shapes - 1..to).map(|from| {
                let (length, sides) = &best[from - (shapes - 1)];
                (length + cost(from, to), sides, histogram[to - 1].0)
            });
            candidates
                .min_by_key(|&(length, ..)| length)
                .map(|(length, sides, side)| (length, [sides.as_slice(), &[side]].concat()))
                .unwrap_or_default()
        });
        best = extended.collect();
    }
    let (length, sides) = best.pop().unwrap_or_default();
    (sides, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shape_is_the_longest_and_counts_its_padding() {
        // 400x400 becomes 800x800; 300x500 becomes 799x1333 (floor), padded to 1344.
        let plans = plans(&[(400, 400), (300, 500)], 800, 1333);
        assert_eq!(plans.len(), 2);
        assert_eq!((plans[0].short_side, plans[0].long_sides.clone()), (800, vec![1344]));
        let image_area = 800.0 * 800.0 + 799.0 * 1333.0;
        let padded = 2.0 * 800.0 * 1344.0;
        assert!((plans[0].wasted - (1.0 - image_area / padded)).abs() < 1e-12);
        assert_eq!(plans[1].long_sides, vec![800, 1344]);
        let padded = 800.0 * (800.0 + 1344.0);
        assert!((plans[1].wasted - (1.0 - image_area / padded)).abs() < 1e-12);
    }

    #[test]
    fn dynamic_programming_equals_trying_all() {
        let mut state = 7u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..50 {
            let histogram: Vec<(u32, u64)> =
                (25..25 + 4 + draw(10) as u32).map(|side| (side * 32, 1 + draw(50))).collect();
            let (sides, length) = best_long_sides(&histogram, 3);
            let padded_length = |shapes: &[u32]| -> u64 {
                let fit = |side: u32| shapes.iter().copied().find(|&shape| shape >= side);
                histogram
                    .iter()
                    .map(|&(side, images)| images * u64::from(fit(side).unwrap_or(u32::MAX)))
                    .sum()
            };
            let last = histogram[histogram.len() - 1].0;
            let mut least = u64::MAX;
            for a in 0..histogram.len() {
                for b in a..histogram.len() {
                    least = least.min(padded_length(&[histogram[a].0, histogram[b].0, last]));
                }
            }
            assert_eq!(length, least);
            assert_eq!(padded_length(&sides), least);
        }
    }

    #[test]
    fn no_images_no_plans() {
        assert!(plans(&[], 800, 1333).is_empty());
    }
}
