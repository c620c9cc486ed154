//! A matrix divided into rectangles that tasks write concurrently.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

/// One rectangle of a matrix, which a single task may write.
///
/// **Invariant:** during `'a` no other part and no other reference covers these elements.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// Rows of the rectangle.
    pub rows: Range<usize>,
    /// Columns of the rectangle.
    pub columns: Range<usize>,
    matrix: *mut f32,
    width: usize,
    data: PhantomData<&'a mut [f32]>,
}

// SAFETY: a part is a unique borrow of its elements, like `&mut [f32]`, which is `Send`.
unsafe impl Send for Part<'_> {}

/// Row indices that split a height into about `count` parts of whole units of `unit` rows; the last
/// unit may be partial. Sizes differ by at most one unit.
pub(super) fn shares(height: usize, unit: usize, count: usize) -> Vec<usize> {
    let units = height.div_ceil(unit);
    let count = count.clamp(1, units.max(1));
    (0..=count).map(|i| height.min(i * units / count * unit)).collect()
}

/// Row indices that split a height into parts of `step` rows.
pub(super) fn steps(height: usize, step: usize) -> Vec<usize> {
    (0..height).step_by(step).chain([height]).collect()
}

/// Splits `matrix`, `width` wide, at the rows `cuts`, from 0 to its height, and every
/// `column_step`-th column.
pub(super) fn cut<'a>(
    matrix: &'a mut [f32],
    width: usize,
    cuts: &[usize],
    column_step: usize,
) -> Vec<Part<'a>> {
    let height = matrix.len() / width;
    assert_eq!(matrix.len(), height * width);
    assert!(cuts.is_sorted() && cuts.first() == Some(&0) && cuts.last() == Some(&height));
    let mut parts = Vec::new();
    for rows in cuts.windows(2) {
        for column in (0..width).step_by(column_step) {
            parts.push(Part {
                rows: rows[0]..rows[1],
                columns: column..width.min(column + column_step),
                matrix: matrix.as_mut_ptr(),
                width,
                data: PhantomData,
            });
        }
    }
    parts
}

impl Part<'_> {
    /// Columns `columns` of row `row`, both relative to the whole matrix and inside this part.
    #[inline(always)]
    pub(super) fn row(&mut self, row: usize, columns: Range<usize>) -> &mut [f32] {
        assert!(self.rows.contains(&row));
        assert!(self.columns.start <= columns.start && columns.start <= columns.end);
        assert!(columns.end <= self.columns.end);
        // SAFETY: row and columns are in this part, so the elements are in the matrix that `cut`
        // borrowed for `'a`; `cut` gives each element to one part, and `&mut self` makes this the
        // only reference into the part.
        unsafe {
            let start = self.matrix.add(row * self.width + columns.start);
            std::slice::from_raw_parts_mut(start, columns.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{cut, shares, steps};

    #[test]
    fn grid_parts_cover_every_element_once() {
        let mut matrix = vec![0.0; 5 * 7];
        let mut parts = cut(&mut matrix, 7, &steps(5, 2), 3);
        assert_eq!(parts.len(), 9);
        for part in &mut parts {
            for row in part.rows.clone() {
                part.row(row, part.columns.clone()).iter_mut().for_each(|v| *v += 1.0);
            }
        }
        assert_eq!(matrix, vec![1.0; 35]);
    }

    /// 37 units in 8 parts of 4 or 5; the first four parts have 18 units, the last four 19.
    #[test]
    fn thread_shares_are_even() {
        let cuts = shares(36 * 14 + 8, 14, 8);
        let units: Vec<usize> = cuts.iter().map(|cut| cut.div_ceil(14)).collect();
        assert_eq!(units, [0, 4, 9, 13, 18, 23, 27, 32, 37]);
        assert_eq!((shares(30, 14, 8), shares(5, 14, 1)), (vec![0, 14, 28, 30], vec![0, 5]));
        assert_eq!((shares(0, 14, 4), steps(5, 2)), (vec![0, 0], vec![0, 2, 4, 5]));
    }
}
