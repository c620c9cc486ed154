//! Test and benchmark cases of `level_gradients`, a backward op without a gradient.

use super::LevelGradients;
use crate::Role;
use crate::case::{OpCase, constant, floats, integers, normal, uniform};
use crate::cpu::HostTensor;
use crate::ops::gather_patches::GatherPatchesGrad;
use crate::ops::roi_align::{RoiAlign, RoiAlignGrad};

const ANCHORS: usize = 3;
/// In the case with this number of channels, patches reach two cells.
const WIDE_PATCHES: usize = 24;

/// One to four heads, with and without patches, also on maps that the heads do not read; none, some
/// or all RoIs in use; odd channels, and more channels than a block processes at once.
pub fn cases() -> Vec<OpCase> {
    let five = [[32, 40], [16, 20], [8, 10], [4, 5], [2, 3]];
    let three = [[16, 24], [8, 12], [4, 6]];
    vec![
        case("one head", (2, &three, 3), PLAIN, &[(7, 11, 9)], None, 8),
        case("two heads", (2, &three, 3), PLAIN, &[(7, 11, 11), (14, 5, 3)], None, 5),
        case("one head, patches", (1, &three, 2), PLAIN, &[(7, 13, 0)], Some(17), 13),
        case("all", (2, &three, 2), PLAIN, &[(7, 37, 31), (14, 13, 13)], Some(40), 136),
        case("wide patches", (2, &three, 3), PLAIN, &[(7, 9, 9), (14, 3, 2)], Some(30), 24),
        case("none in use", (1, &[[9, 11]], 1), PLAIN, &[(3, 4, 0), (5, 2, 0)], Some(1), 8),
        case("no images", (0, &[[9, 11]], 1), PLAIN, &[(3, 0, 0)], Some(3), 8),
        case("three heads", (2, &three, 3), PLAIN, &[(7, 11, 11), (7, 9, 4), (5, 3, 3)], None, 8),
        case("four heads", (2, &three, 2), PLAIN, &FOUR, Some(17), 5),
        case("four adaptive", (1, &three, 3), (0, true), &FOUR, Some(9), 16),
        case("many samples", (1, &five, 5), (0, false), &[(3, 9, 9), (2, 7, 7)], Some(7), 8),
        case("many bins", (1, &three, 2), (5, true), &[(28, 9, 9), (17, 7, 7)], None, 8),
    ]
}

/// The stages of a cascade, and a mask head.
const FOUR: [(usize, usize, i32); 4] = [(7, 11, 9), (7, 11, 11), (7, 11, 10), (14, 3, 3)];

/// Samples per side of a bin (0: one per pixel that the bin covers), and the half-pixel shift.
const PLAIN: (usize, bool) = (2, false);

/// Heads are (bins per side, capacity, RoIs in use) on the first `levels` maps; `patches` is the
/// number of patches per image.
fn case(
    label: &str,
    (images, sizes, levels): (usize, &[[usize; 2]], usize),
    (sampling_ratio, aligned): (usize, bool),
    heads: &[(usize, usize, i32)],
    patches: Option<usize>,
    channels: usize,
) -> OpCase {
    let mut inputs = vec![];
    let mut rois = vec![];
    for (i, &(pooled, rows, count)) in heads.iter().enumerate() {
        let seed = 10 * i as u32;
        inputs.extend([
            normal(Role::Gradient, &[rows, pooled, pooled, channels], seed, 1.0),
            boxes(rows, sizes[0], seed + 1),
            integers(&[rows], seed + 5, 0, images.max(1) as i32),
            integers(&[rows], seed + 6, 0, levels as i32),
            constant(&[1], count),
        ]);
        let spatial_scales = (0..levels).map(|l| 0.25 / (1 << l) as f32).collect();
        // With more than two heads, the first has the gradient scale of a cascade stage.
        let gradient_scale = if i == 0 && heads.len() > 2 { 1.0 / 3.0 } else { 1.0 };
        let forward = RoiAlign { pooled, sampling_ratio, aligned, spatial_scales, gradient_scale };
        rois.push(RoiAlignGrad { forward, images, level_sizes: sizes[..levels].to_vec() });
    }
    let patches = patches.map(|per_image| {
        let reach = if channels == WIDE_PATCHES { 2 } else { 1 };
        let side = 2 * reach + 1;
        let g = [images * per_image, side, side, channels];
        let anchors = sizes.iter().map(|[h, w]| h * w * ANCHORS).sum::<usize>();
        let idx = integers(&[images, per_image], 41, -1, anchors as i32);
        inputs.extend([normal(Role::Gradient, &g, 40, 1.0), idx]);
        GatherPatchesGrad { anchors_per_cell: ANCHORS, reach, level_sizes: sizes.to_vec() }
    });
    OpCase::new(label, LevelGradients { rois, patches }, inputs)
}

/// Boxes in an image whose finest map has a stride of 4; some cross the image's border.
fn boxes(rows: usize, [height, width]: [usize; 2], seed: u32) -> HostTensor {
    let column = |seed, low, high| uniform(Role::Box, &[rows], seed, low, high);
    let (h, w) = (4.0 * height as f32, 4.0 * width as f32);
    let [x, y] = [column(seed, -5.0, w), column(seed + 1, -5.0, h)];
    let [dx, dy] = [column(seed + 2, 1.0, w), column(seed + 3, 1.0, h)];
    let corners = (0..rows).flat_map(|i| {
        let [x, y, dx, dy] = [&x, &y, &dx, &dy].map(|t| t.as_f32()[i]);
        [x, y, x + dx, y + dy]
    });
    floats(Role::Box, &[rows, 4], corners.collect::<Vec<_>>())
}
