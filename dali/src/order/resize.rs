//! Size of an image after it is resized for the network.

use choices::ResizeRounding;

/// Height and width after resizing: the short side becomes `min_size`, or less if the long side
/// would exceed `max_size`. Each side is at least 1.
///
/// # Units
/// All sizes are in pixels.
///
/// # Panics
/// If a side is 0, which no image in a store has.
#[must_use]
pub fn resized_size(
    height: u32,
    width: u32,
    min_size: usize,
    max_size: usize,
    rounding: ResizeRounding,
) -> (u32, u32) {
    assert!(height > 0 && width > 0, "resized_size: an image of {height}x{width}");
    let (short, long) = (f64::from(height.min(width)), f64::from(height.max(width)));
    let (min_size, max_size) = (min_size as f64, max_size as f64);
    match rounding {
        ResizeRounding::FloorScale => {
            let scale = (min_size / short).min(max_size / long);
            let scaled = |side: u32| ((f64::from(side) * scale).floor() as u32).max(1);
            (scaled(height), scaled(width))
        }
        ResizeRounding::HalfEven => {
            // The order of operations matches maskrcnn-benchmark, since each operation rounds in
            // f64.
            let side = if long / short * min_size > max_size {
                (max_size * short / long).round_ties_even().max(1.0)
            } else {
                min_size
            };
            if short == side {
                return (height, width);
            }
            let other = (side * long / short) as u32;
            if height > width { (other, side as u32) } else { (side as u32, other) }
        }
        ResizeRounding::HalfUp => {
            // The order of operations matches detectron2, since each operation rounds in f64.
            let scale = min_size / short;
            let other = scale * long;
            let shrink = if other > max_size { max_size / other } else { 1.0 };
            let [short, long] = [min_size, other].map(|side| ((side * shrink + 0.5) as u32).max(1));
            if height < width { (short, long) } else { (long, short) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resized_sizes_match_reference_for_each_rounding() {
        use ResizeRounding::{FloorScale, HalfEven, HalfUp};
        // (height, width), then the results from torchvision, maskrcnn-benchmark and detectron2 for
        // sizes 800 and 1333.
        let cases = [
            ((480, 640), (800, 1066), (800, 1066), (800, 1067)),
            ((640, 480), (1066, 800), (1066, 800), (1067, 800)),
            ((427, 640), (800, 1199), (800, 1199), (800, 1199)),
            ((500, 500), (800, 800), (800, 800), (800, 800)),
            // The exact side is 666.5: floor and half to even give 666, half up gives 667.
            ((320, 640), (666, 1333), (666, 1332), (667, 1333)),
            ((100, 2000), (66, 1333), (67, 1340), (67, 1333)),
        ];
        for ((h, w), floor, half_even, half_up) in cases {
            assert_eq!(resized_size(h, w, 800, 1333, FloorScale), floor, "{h}x{w} floor");
            assert_eq!(resized_size(h, w, 800, 1333, HalfEven), half_even, "{h}x{w} half even");
            assert_eq!(resized_size(h, w, 800, 1333, HalfUp), half_up, "{h}x{w} half up");
        }
    }

    #[test]
    fn thin_image_keeps_at_least_one_pixel() {
        assert_eq!(resized_size(1, 5000, 800, 1333, ResizeRounding::FloorScale), (1, 1333));
        assert!(resized_size(1, 5000, 800, 1333, ResizeRounding::HalfEven).0 >= 1);
        assert_eq!(resized_size(1, 5000, 800, 1333, ResizeRounding::HalfUp), (1, 1333));
    }
}
