//! Masks in COCO's formats: polygons, rasterized as by the COCO API, and run-length encoding (RLE).
//!
//! Results are bit-identical to the COCO API (`rleFrPoly`, `rleDecode`, `rleEncode`).

mod crop;
mod polygon;
mod runs;

pub(crate) use crop::Crop;
pub(crate) use runs::RunWriter;
pub use runs::{decode_runs, encode_runs};

/// A mask of one byte per pixel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// 0 or 1, row-major.
    pub pixels: Vec<u8>,
}

impl Bitmap {
    /// An empty mask.
    pub fn zeros(height: usize, width: usize) -> Self {
        Self { height, width, pixels: vec![0; height * width] }
    }

    /// Number of pixels set.
    pub fn area(&self) -> usize {
        self.pixels.iter().map(|&p| usize::from(p)).sum()
    }
}

/// The pixels of an object given as polygons `x0, y0, x1, y1, ..`: the union of their fills.
///
/// A polygon's last point is joined to its first. A trailing unpaired coordinate is ignored, and so
/// are polygons without points.
pub fn rasterize<P: AsRef<[f64]>>(polygons: &[P], height: usize, width: usize) -> Bitmap {
    Crop::of_polygons(polygons, height, width).paste(height, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::philox4x32;

    /// The COCO API's algorithm, step by step: walk the boundary at five times the size, keep the
    /// samples where it passes a column centre, sort their column-major positions, fill between
    /// pairs.
    fn by_the_book(polygon: &[f64], height: usize, width: usize) -> Bitmap {
        let mut points: Vec<[i64; 2]> =
            polygon.chunks_exact(2).map(|p| [0, 1].map(|i| (5.0 * p[i] + 0.5) as i64)).collect();
        points.push(points[0]);
        let mut walk: Vec<[i64; 2]> = Vec::new();
        for pair in points.windows(2) {
            let (mut a, mut b) = (pair[0], pair[1]);
            let span = [(b[0] - a[0]).abs(), (b[1] - a[1]).abs()];
            let major = usize::from(span[0] < span[1]);
            let flip = a[major] > b[major];
            if flip {
                (a, b) = (b, a);
            }
            let slope = (b[1 - major] - a[1 - major]) as f64 / span[major] as f64;
            for d in 0..=span[major] {
                let t = if flip { span[major] - d } else { d };
                let mut at = [0; 2];
                at[major] = a[major] + t;
                at[1 - major] = (a[1 - major] as f64 + slope * t as f64 + 0.5) as i64;
                walk.push(at);
            }
        }
        let mut ends = Vec::new();
        for pair in walk.windows(2).filter(|p| p[0][0] != p[1][0]) {
            let x = (pair[0][0].min(pair[1][0]) as f64 + 0.5) / 5.0 - 0.5;
            if x.floor() != x || x < 0.0 || x > width as f64 - 1.0 {
                continue;
            }
            let y = (pair[0][1].min(pair[1][1]) as f64 + 0.5) / 5.0 - 0.5;
            let y = y.clamp(0.0, height as f64).ceil();
            ends.push(x as usize * height + y as usize);
        }
        ends.sort_unstable();
        let mut bitmap = Bitmap::zeros(height, width);
        for pair in ends.chunks(2) {
            for p in pair[0]..*pair.get(1).unwrap_or(&(height * width)) {
                bitmap.pixels[p % height * width + p / height] = 1;
            }
        }
        bitmap
    }

    #[test]
    fn rasterizer_matches_stepwise_rule_on_random_polygons() {
        for seed in 0..3000 {
            let word = |i: u32| philox4x32([seed, 9], [i, 0, 0, 0])[0];
            let (height, width) = (1 + word(0) as usize % 23, 1 + word(1) as usize % 29);
            let points = 1 + word(2) % 9;
            // Some polygons on whole and half pixels, some far larger than the image.
            let steps = [2.0, 1000.0][word(3) as usize % 2];
            let spread = [1.0, 1.4, 8.0][word(4) as usize % 3];
            let polygon: Vec<f64> = (0..2 * points)
                .map(|i| {
                    let size = if i % 2 == 0 { width } else { height } as f64;
                    let unit = f64::from(word(10 + i)) / f64::from(u32::MAX);
                    let at = (unit - 0.5) * spread * size + 0.5 * size;
                    (at * steps).round() / steps
                })
                .collect();
            let expected = by_the_book(&polygon, height, width);
            assert_eq!(rasterize(&[&polygon], height, width), expected, "{polygon:?}");
        }
    }

    #[test]
    fn square_and_union_match_hand_computed_masks() {
        let square = [1.0, 1.0, 3.0, 1.0, 3.0, 4.0, 1.0, 4.0];
        let bitmap = rasterize(&[square], 5, 4);
        let expected = [0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0];
        assert_eq!(bitmap.pixels, expected);
        assert_eq!(bitmap.area(), 6);
        assert_eq!(rasterize(&[square, square], 5, 4), bitmap, "an overlap stays set");
        assert_eq!(rasterize::<&[f64]>(&[], 5, 4).area(), 0);
        assert_eq!(rasterize(&[&[][..], &[1.0], &[2.0, 2.0]], 5, 4).area(), 0);
    }

    #[test]
    fn extreme_polygon_coordinates_terminate() {
        let huge = [-1e12, -1e12, 1e12, -1e12, 1e12, 1e12, -1e12, 1e12];
        assert_eq!(rasterize(&[huge], 7, 5).area(), 35);
        rasterize(&[[f64::NAN, 1.0, 4.0, f64::INFINITY, 2.0, 2.0]], 7, 5);
    }

    #[test]
    fn rle_matches_hand_computed_runs_and_round_trips() {
        let mut bitmap = Bitmap::zeros(3, 2);
        bitmap.pixels = vec![0, 1, 1, 1, 0, 0];
        assert_eq!(encode_runs(&bitmap), [1, 1, 1, 2, 1]);
        assert_eq!(decode_runs(&[1, 1, 1, 2, 1], 3, 2), bitmap);
        bitmap.pixels[0] = 1;
        assert_eq!(encode_runs(&bitmap), [0, 2, 1, 2, 1]);
        assert_eq!(decode_runs(&encode_runs(&bitmap), 3, 2), bitmap);
        assert_eq!(decode_runs(&[0, 100], 3, 2).area(), 6, "runs past the end stop there");
        assert_eq!(decode_runs(&[], 3, 2).area(), 0);
    }
}
