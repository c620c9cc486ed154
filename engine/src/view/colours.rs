//! Colour jitter of an image, as one affine map of red, green and blue.

use std::f64::consts::TAU;

use crate::config::Augment;

/// Weights of red, green and blue in torchvision's greyscale.
const GREY: [f64; 3] = [0.2989, 0.587, 0.114];
/// Weights of red, green and blue in the luma of YIQ and YUV.
const LUMA: [f64; 3] = [0.299, 0.587, 0.114];
/// The factors of V = f0 * (red - luma) and U = f1 * (blue - luma).
const CHROMA: [f64; 2] = [0.877_283, 0.492_111];

/// An affine map of red, green and blue, in 0 to 255: for each output, three coefficients and a
/// constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColourMap([[f64; 4]; 3]);

impl ColourMap {
    /// Samples the map for an image with these RGB pixels. `unit` returns a random number in [0, 1)
    /// for each index.
    pub(super) fn draw(augment: &Augment, pixels: &[u8], unit: impl Fn(u32) -> f64) -> Self {
        let around = |index, most: f32| f64::from(most) * (2.0 * unit(index) - 1.0);
        let mut map = Self::brightness(1.0 + around(0, augment.brightness));
        if augment.contrast > 0.0 {
            let mean = grey(map.apply(mean(pixels)));
            map = map.then(Self::contrast(1.0 + around(1, augment.contrast), mean));
        }
        map = map.then(Self::saturation(1.0 + around(2, augment.saturation)));
        if augment.hue > 0.0 {
            map = map.then(Self::hue(around(3, augment.hue)));
        }
        let is_grey = unit(4) < f64::from(augment.grey);
        if is_grey { map.then(Self::saturation(0.0)) } else { map }
    }

    /// Multiplies each value by `factor`.
    #[must_use]
    pub fn brightness(factor: f64) -> Self {
        Self::blend(factor, |_| [0.0; 4])
    }

    /// Multiplies the differences from `mean_grey` by `factor`.
    #[must_use]
    pub fn contrast(factor: f64, mean_grey: f64) -> Self {
        Self::blend(factor, |_| [0.0, 0.0, 0.0, mean_grey])
    }

    /// Multiplies the differences from the pixel's grey value by `factor`; 0 gives greyscale.
    #[must_use]
    pub fn saturation(factor: f64) -> Self {
        let [red, green, blue] = GREY;
        Self::blend(factor, |_| [red, green, blue, 0.0])
    }

    /// Rotates the hue by `turns` in the chroma plane of YIQ (the same as YUV's), from red towards
    /// green. Luma is unchanged.
    #[must_use]
    pub fn hue(turns: f64) -> Self {
        let (sin, cos) = (TAU * turns).sin_cos();
        let turned = |unit: [f64; 3]| {
            let luma: f64 = (0..3).map(|i| LUMA[i] * unit[i]).sum();
            let [v, u] = [CHROMA[0] * (unit[0] - luma), CHROMA[1] * (unit[2] - luma)];
            let red = luma + (u * sin + v * cos) / CHROMA[0];
            let blue = luma + (u * cos - v * sin) / CHROMA[1];
            [red, (luma - LUMA[0] * red - LUMA[2] * blue) / LUMA[1], blue]
        };
        let columns = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]].map(turned);
        Self([0, 1, 2].map(|i| [columns[0][i], columns[1][i], columns[2][i], 0.0]))
    }

    /// Composition: this map, then `next`.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self(next.0.map(|row| {
            let of = |at: usize| (0..3).map(|i| row[i] * self.0[i][at]).sum::<f64>();
            [of(0), of(1), of(2), of(3) + row[3]]
        }))
    }

    /// The image's row in the batch array `colours`.
    #[must_use]
    pub fn row(&self) -> [f32; 12] {
        let values = self.0.as_flattened();
        std::array::from_fn(|i| values[i] as f32)
    }

    /// Blends each value with the map whose rows `other` returns, with weights `factor` and `1 -
    /// factor`.
    fn blend(factor: f64, other: impl Fn(usize) -> [f64; 4]) -> Self {
        Self([0, 1, 2].map(|i| {
            let mut row = other(i).map(|v| v * (1.0 - factor));
            row[i] += factor;
            row
        }))
    }

    fn apply(&self, [red, green, blue]: [f64; 3]) -> [f64; 3] {
        self.0.map(|row| row[0] * red + row[1] * green + row[2] * blue + row[3])
    }
}

fn grey(colour: [f64; 3]) -> f64 {
    (0..3).map(|i| GREY[i] * colour[i]).sum()
}

/// Mean red, green and blue.
fn mean(pixels: &[u8]) -> [f64; 3] {
    let mut sums = [0_u64; 3];
    for pixel in pixels.chunks_exact(3) {
        (0..3).for_each(|i| sums[i] += u64::from(pixel[i]));
    }
    sums.map(|sum| sum as f64 / (pixels.len() / 3) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOUR: [f64; 3] = [200.0, 40.0, 90.0];

    fn close(got: [f64; 3], want: [f64; 3]) {
        assert!((0..3).all(|i| (got[i] - want[i]).abs() < 1e-9), "{got:?}, not {want:?}");
    }

    #[test]
    fn colour_maps_compose() {
        let (first, next) = (ColourMap::contrast(0.5, 100.0), ColourMap::hue(0.2));
        close(first.then(next).apply(COLOUR), next.apply(first.apply(COLOUR)));
        close(ColourMap::contrast(0.5, 100.0).apply(COLOUR), [150.0, 70.0, 95.0]);
    }

    /// Luma and greys are unchanged, rotations add up, and red rotates towards green.
    #[test]
    fn hue_rotation_keeps_greys() {
        let luma = |colour: [f64; 3]| (0..3).map(|i| LUMA[i] * colour[i]).sum::<f64>();
        for turns in [-0.4, 0.1, 0.5] {
            let hue = ColourMap::hue(turns);
            assert!((luma(hue.apply(COLOUR)) - luma(COLOUR)).abs() < 1e-9);
            close(hue.apply([7.0; 3]), [7.0; 3]);
            close(hue.then(ColourMap::hue(1.0 - turns)).apply(COLOUR), COLOUR);
        }
        let [red, green, blue] = ColourMap::hue(0.25).apply([255.0, 0.0, 0.0]);
        assert!(green > red && green > blue);
    }

    /// Contrast is applied after brightness, and preserves the greyscale value of the mean colour.
    #[test]
    fn contrast_keeps_mean_grey_after_brightness() {
        let pixels = [10, 20, 30, 250, 40, 90, 0, 0, 7];
        let augment = Augment { contrast: 0.5, brightness: 0.5, ..Augment::default() };
        for unit in [0.0, 0.3, 0.999] {
            let map = ColourMap::draw(&augment, &pixels, |_| unit);
            let before = mean(&pixels);
            let factor = 0.5 + unit;
            let kept = factor * grey(before);
            let all = grey([1.0; 3]);
            let want = factor * kept + (1.0 - factor) * kept * all;
            assert!((grey(map.apply(before)) - want).abs() < 1e-9, "{unit}");
        }
    }

    #[test]
    fn image_is_greyscale_if_random_number_is_below_probability() {
        let augment = Augment { grey: 0.25, ..Augment::default() };
        let drawn = |unit: f64| ColourMap::draw(&augment, &[1, 2, 3], |_| unit).apply(COLOUR);
        close(drawn(0.2), [grey(COLOUR); 3]);
        close(drawn(0.3), COLOUR);
    }
}
