//! Test and benchmark cases of `anchors`.

use super::Anchors;
use crate::boxes::{AnchorLevel, cell_anchors};
use crate::case::OpCase;

/// No level, an empty level, one cell, prime sizes, the pyramid of an 800x1344 image, and more
/// levels and cells than one CUDA launch supports.
pub fn cases() -> Vec<OpCase> {
    let pyramids: [&[(usize, usize)]; 5] = [
        &[],
        &[(0, 5)],
        &[(1, 1)],
        &[(7, 11), (5, 1)],
        &[(200, 336), (100, 168), (50, 84), (25, 42), (13, 21)],
    ];
    let level = |(i, &(height, width)): (usize, &(usize, usize))| {
        let stride = (4 << i) as f32;
        let cells = cell_anchors(&[8.0 * stride], &[0.5, 1.0, 2.0]);
        AnchorLevel { height, width, stride_h: stride, stride_w: stride, cells }
    };
    let many_cells = |h| AnchorLevel {
        height: h,
        width: 3,
        stride_h: 7.0,
        stride_w: 5.0,
        cells: cell_anchors(&[11.0; 23], &[0.5, 1.0, 2.0]),
    };
    let large = Anchors { levels: (1..=11).map(many_cells).collect() };
    pyramids
        .iter()
        .map(|maps| {
            let levels = maps.iter().enumerate().map(level).collect();
            OpCase::new(format!("{maps:?}"), Anchors { levels }, vec![])
        })
        .chain([OpCase::new("11 levels of 69 cells", large, vec![])])
        .collect()
}
