//! Computes the padded shapes that minimize padding. Training pads each image to one of K shapes
//! per orientation.
//!
//! An image is scaled to a short side of `min_size`, or less if its long side would exceed
//! `max_size`, then padded to a multiple of 32. All K shapes have the same short side; landscape
//! and portrait shapes have the same K long sides.

use choices::ResizeRounding;

use crate::order::{least_waste, resized_size};

/// Padded sides are multiples of the coarsest stride of the feature pyramid.
pub const SIDE_MULTIPLE: u32 = 32;
/// Maximum number of shapes per orientation. More shapes would save little padding, and each needs
/// a captured CUDA graph.
pub const MAX_SHAPES: usize = 3;

/// The best long sides for a given number of shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct PaddingPlan {
    /// Padded short side, in pixels.
    pub short_side: u32,
    /// Padded long sides, in pixels, ascending; each is used for a landscape and a portrait shape.
    pub long_sides: Vec<u32>,
    /// Padding as a fraction of all padded pixels, 0 to 1.
    pub wasted: f64,
}

/// The best plan for each number of shapes, 1 to [`MAX_SHAPES`]; empty if there are no images.
///
/// `sizes` are (height, width) of the source images; `min_size` and `max_size` are the values used
/// in training.
pub fn plans(sizes: &[(u32, u32)], min_size: u32, max_size: u32) -> Vec<PaddingPlan> {
    let short_side = min_size.next_multiple_of(SIDE_MULTIPLE);
    let [min_size, max_size] = [min_size, max_size].map(|side| side as usize);
    let scaled = |&(height, width): &(u32, u32)| {
        resized_size(height, width, min_size, max_size, ResizeRounding::FloorScale)
    };
    let scaled: Vec<(u32, u32)> = sizes.iter().map(scaled).collect();
    let area: f64 = scaled.iter().map(|&(a, b)| f64::from(a) * f64::from(b)).sum();
    let long_side = |(a, b): (u32, u32)| a.max(b).next_multiple_of(SIDE_MULTIPLE) as usize;
    let sides: Vec<_> = scaled.iter().map(|&s| (long_side(s), short_side as usize)).collect();
    let plan = |num_shapes: usize| {
        let (chosen, padded) = least_waste(sides.clone(), num_shapes);
        let long_sides: Vec<u32> = chosen.iter().map(|(long, _)| *long as u32).collect();
        let wasted = 1.0 - area / padded as f64;
        (long_sides.len() == num_shapes).then_some(PaddingPlan { short_side, long_sides, wasted })
    };
    (1..=MAX_SHAPES).filter_map(plan).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_plan_covers_all_images_and_counts_padding() {
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
    fn padding_plans_without_images_are_empty() {
        assert!(plans(&[], 800, 1333).is_empty());
    }
}
