//! Maps an image from its source to the network's input, one axis at a time: a window of the source
//! is resized, cropped to the network's image, and flipped; last, the axes may be swapped.
//!
//! Lengths are integers, so pixels, boxes and masks follow the arithmetic of torchvision, Pillow
//! and Detectron, whose ratios are computed from two sizes. `src/cuda/view.cuh` has the same
//! functions.

use bytemuck::{Pod, Zeroable};

use crate::resize::nearest_source;

/// An axis of a [`View`], in pixels.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct Axis {
    /// Length of the source.
    pub source: i32,
    /// First pixel of the window within the source.
    pub start: i32,
    /// Length of the window.
    pub window: i32,
    /// Length that the window is resized to.
    pub resized: i32,
    /// First pixel of the network's image within the resized window.
    pub offset: i32,
    /// Length of the network's image, without padding.
    pub network: i32,
    /// 1 if the network's image is flipped along this axis, else 0.
    pub mirrored: i32,
}

/// The mapping of one image: a row of the batch array `views`, `[N, 15]`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct View {
    /// Rows of the source.
    pub y: Axis,
    /// Columns of the source.
    pub x: Axis,
    /// 1 if source rows and columns are swapped in the network's image, else 0.
    pub transposed: i32,
}

impl View {
    /// Elements of a row.
    pub const LEN: usize = 15;

    /// The whole source resized to the network's image, both height and width.
    pub fn whole(source: [i32; 2], network: [i32; 2]) -> Self {
        let axis = |i: usize| Axis {
            source: source[i],
            start: 0,
            window: source[i],
            resized: network[i],
            offset: 0,
            network: network[i],
            mirrored: 0,
        };
        Self { y: axis(0), x: axis(1), transposed: 0 }
    }

    /// The view of image `n` of `views`.
    pub fn of(views: &[i32], n: usize) -> Self {
        bytemuck::pod_read_unaligned(bytemuck::cast_slice(&views[Self::LEN * n..][..Self::LEN]))
    }

    /// The view as a row of `views`.
    pub fn row(&self) -> &[i32] {
        bytemuck::cast_slice(std::slice::from_ref(self))
    }

    /// The two axes, the source's rows first.
    pub fn axes(&self) -> [Axis; 2] {
        [self.y, self.x]
    }

    /// Reorders two values or axes from the source's rows and columns to the network's rows and
    /// columns, or back.
    pub fn turned<T>(&self, [rows, columns]: [T; 2]) -> [T; 2] {
        if self.transposed != 0 { [columns, rows] } else { [rows, columns] }
    }

    /// Height and width of the network's image, without padding.
    pub fn network(&self) -> [i32; 2] {
        self.turned(self.axes().map(|axis| axis.network))
    }

    /// Rotates the network's image counter-clockwise by `quarters` x 90 degrees (`torch.rot90`).
    pub fn turn(&mut self, quarters: u32) {
        for _ in 0..quarters % 4 {
            // The network's columns, which become its rows, are flipped.
            let columns = if self.transposed != 0 { &mut self.y } else { &mut self.x };
            columns.mirrored = 1 - columns.mirrored;
            self.transposed = 1 - self.transposed;
        }
    }
}

impl Axis {
    /// True if all pixels can be read: the window is inside the source, the network's image inside
    /// the resized window.
    pub fn is_sound(&self) -> bool {
        let within = |first: i32, len: i32, all: i32| {
            first >= 0 && len > 0 && i64::from(first) + i64::from(len) <= i64::from(all)
        };
        within(self.start, self.window, self.source)
            && within(self.offset, self.network, self.resized)
    }

    /// Pixel of the resized window at pixel `at` of the network's image.
    pub fn resized_at(&self, at: usize) -> usize {
        let (at, network, offset) = (at, self.network as usize, self.offset as usize);
        offset + if self.mirrored != 0 { network - 1 - at } else { at }
    }

    /// First pixel of the network's image within the resized window if the window is flipped first.
    fn mirrored_offset(&self) -> i32 {
        self.resized - self.offset - self.network
    }

    /// Source pixel of pixel `at` of the network's image, if the window is flipped and then resized
    /// with nearest-neighbour interpolation.
    pub fn nearest(&self, at: usize) -> usize {
        let (window, resized) = (self.window as usize, self.resized as usize);
        let within = |offset: i32| nearest_source(at + offset as usize, window, resized);
        let within = match self.mirrored {
            0 => within(self.offset),
            _ => window - 1 - within(self.mirrored_offset()),
        };
        self.start as usize + within
    }

    /// Source pixel under a point of the network's image; `None` outside the image.
    pub fn under(&self, at: f32) -> Option<usize> {
        if !(at >= 0.0 && at < self.network as f32) {
            return None;
        }
        let offset = if self.mirrored != 0 { self.mirrored_offset() } else { self.offset };
        let pixel = (at + offset as f32) * self.window as f32 / self.resized as f32;
        let pixel = (pixel as i32).min(self.window - 1);
        let within = if self.mirrored != 0 { self.window - 1 - pixel } else { pixel };
        Some((self.start + within) as usize)
    }

    /// Resized length divided by the window's, f32; 0 without a window.
    pub fn ratio(&self) -> f32 {
        if self.window == 0 { 0.0 } else { self.resized as f32 / self.window as f32 }
    }

    /// Maps a coordinate from the source to the network's image: `v` is resized, and on a flipped
    /// axis becomes `network - v`, or one less with `plus_one`. Computed in f64, as in detectron2,
    /// or with `plus_one` in f32, as in maskrcnn-benchmark.
    pub fn place(&self, v: f32, plus_one: bool) -> f64 {
        let (rounded, long) = (|v: f64| as_f32(v, plus_one), |v: i32| f64::from(v));
        let ratio = if self.window == 0 { 0.0 } else { long(self.resized) / long(self.window) };
        let within = rounded(f64::from(v) - long(self.start));
        let resized = rounded(rounded(within * rounded(ratio)) - long(self.offset));
        if self.mirrored == 0 {
            return resized;
        }
        rounded(rounded(long(self.network) - resized) - if plus_one { 1.0 } else { 0.0 })
    }

    /// Maps the low and the high end of a box by [`Axis::place`], and rounds to f32.
    pub fn place_ends(&self, low: f32, high: f32, plus_one: bool) -> [f32; 2] {
        let ends = if self.mirrored == 0 { [low, high] } else { [high, low] };
        ends.map(|v| self.place(v, plus_one) as f32)
    }
}

/// An f64 result, rounded to f32 if `narrow`: for f32 operands, it then equals the result of f32
/// arithmetic.
pub(crate) fn as_f32(value: f64, narrow: bool) -> f64 {
    if narrow { f64::from(value as f32) } else { value }
}

#[cfg(test)]
mod tests {
    use super::{Axis, View};

    /// Pixels 2..8 of 10 are resized to twice the size, and cropped to pixels 3..11.
    const CROP: Axis =
        Axis { source: 10, start: 2, window: 6, resized: 12, offset: 3, network: 8, mirrored: 0 };

    #[test]
    fn crop_view_matches_hand_computed_values() {
        assert!(CROP.is_sound());
        assert_eq!([0, 7].map(|at| CROP.resized_at(at)), [3, 10]);
        assert_eq!([0, 1, 7].map(|at| CROP.nearest(at)), [3, 4, 7]);
        assert_eq!([2.0, 3.5, 8.0].map(|v| CROP.place(v, false)), [-3.0, 0.0, 9.0]);
    }

    /// A flipped view maps to the same pixels as the plain one, in reverse order.
    #[test]
    fn flip_transforms_pixels_vertices_and_boxes() {
        let mirrored = Axis { mirrored: 1, ..CROP };
        for at in 0..8 {
            assert_eq!(mirrored.resized_at(at), CROP.resized_at(7 - at));
        }
        // The window has an even length, so nearest pixels flip exactly.
        let all = |axis: Axis| (0..8).map(|at| axis.nearest(at)).collect::<Vec<_>>();
        assert_eq!(all(CROP), [3, 4, 4, 5, 5, 6, 6, 7]);
        assert_eq!(all(mirrored), [7, 6, 6, 5, 5, 4, 4, 3]);
        assert_eq!(mirrored.place(3.5, false), 8.0);
        assert_eq!(mirrored.place(3.5, true), 7.0);
        for plus_one in [false, true] {
            let ends = mirrored.place_ends(3.0, 5.0, plus_one);
            assert_eq!(ends, [5.0, 3.0].map(|v| mirrored.place(v, plus_one) as f32));
        }
    }

    #[test]
    fn view_outside_image_is_invalid() {
        let cases = [
            Axis { start: -1, ..CROP },
            Axis { start: 5, ..CROP },
            Axis { window: 0, ..CROP },
            Axis { offset: 5, ..CROP },
            Axis { network: 0, ..CROP },
            Axis { start: i32::MAX, ..CROP },
        ];
        assert!(cases.iter().all(|axis| !axis.is_sound()));
    }

    #[test]
    fn view_row_round_trips() {
        let view = View { x: CROP, transposed: 1, ..View::whole([4, 10], [6, 8]) };
        let rows = [[0; View::LEN].as_slice(), view.row()].concat();
        assert_eq!(View::of(&rows, 1), view);
        assert_eq!(view.row()[..7], [4, 0, 4, 6, 0, 6, 0]);
        assert_eq!((view.row()[14], view.network()), (1, [8, 6]));
    }

    /// The source pixel at the network's first pixel: the top right corner after one
    /// counter-clockwise rotation, then the bottom right, the bottom left, and the first again.
    #[test]
    fn four_90_degree_rotations_are_identity() {
        let mut view = View::whole([4, 6], [4, 6]);
        for corner in [[0, 5], [3, 5], [3, 0], [0, 0]] {
            view.turn(1);
            assert_eq!(view.axes().map(|axis| axis.resized_at(0)), corner);
        }
        assert_eq!(view, View::whole([4, 6], [4, 6]));
    }
}
