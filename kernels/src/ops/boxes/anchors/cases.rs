//! Cases of `anchors` for the table of ops.

use super::Anchors;
use crate::boxes::{AnchorLevel, cell_anchors};
use crate::case::OpCase;

/// No level, an empty one, one cell, primes, the pyramid of an 800x1344 image, and more levels and
/// cells than a CUDA launch takes.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::as_boxes;
    use crate::case::hand::run;

    fn level(height: usize, width: usize, stride_h: f32, stride_w: f32) -> AnchorLevel {
        AnchorLevel { height, width, stride_h, stride_w, cells: cell_anchors(&[32.0], &[0.5, 1.0]) }
    }

    /// Drawn by hand: ratio 0.5 of size 32 is 45.25 x 22.63, halves 22.63 and 11.31.
    #[test]
    fn two_levels_by_hand() {
        let op = Anchors { levels: vec![level(1, 2, 4.0, 5.0), level(2, 1, 8.0, 8.0)] };
        let outputs = run(&op, &[]);
        let wide = |x: f32, y: f32| [x - 23.0, y - 11.0, x + 23.0, y + 11.0];
        let square = |x: f32, y: f32| [x - 16.0, y - 16.0, x + 16.0, y + 16.0];
        let at = |x, y| [wide(x, y), square(x, y)];
        let expected = [at(0.0, 0.0), at(5.0, 0.0), at(0.0, 0.0), at(0.0, 8.0)].concat();
        assert_eq!(as_boxes(outputs[0].as_f32()), expected);
    }

    /// The anchor at (y, x) is that at the origin, moved: for every index, by division.
    #[test]
    fn every_anchor_is_a_moved_cell() {
        let op = Anchors { levels: vec![level(5, 7, 3.0, 2.0)] };
        let outputs = run(&op, &[]);
        for (i, b) in as_boxes(outputs[0].as_f32()).iter().enumerate() {
            let (y, x, cell) = (i / 14, i / 2 % 7, op.levels[0].cells[i % 2]);
            let (dx, dy) = (2.0 * x as f32, 3.0 * y as f32);
            assert_eq!(*b, [cell[0] + dx, cell[1] + dy, cell[2] + dx, cell[3] + dy]);
        }
    }
}
