//! A matrix divided into rectangles that tasks write concurrently.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

/// One rectangle of a matrix, writable by one task.
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

/// Cuts `matrix`, `width` wide, at every `row_step`-th row and every `column_step`-th column.
pub(super) fn cut(
    matrix: &mut [f32],
    width: usize,
    row_step: usize,
    column_step: usize,
) -> Vec<Part<'_>> {
    let height = matrix.len() / width;
    assert_eq!(matrix.len(), height * width);
    let mut parts = Vec::new();
    for row in (0..height).step_by(row_step) {
        for column in (0..width).step_by(column_step) {
            parts.push(Part {
                rows: row..height.min(row + row_step),
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
    /// Columns `columns` of row `row`, both counted in the whole matrix and inside this part.
    #[inline(always)]
    pub(super) fn row(&mut self, row: usize, columns: Range<usize>) -> &mut [f32] {
        assert!(self.rows.contains(&row));
        assert!(self.columns.start <= columns.start && columns.start <= columns.end);
        assert!(columns.end <= self.columns.end);
        // SAFETY: row and columns lie in this part, so the elements lie in the matrix that `cut`
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
    use super::cut;

    #[test]
    fn parts_cover_every_element_once() {
        let mut matrix = vec![0.0; 5 * 7];
        let mut parts = cut(&mut matrix, 7, 2, 3);
        assert_eq!(parts.len(), 9);
        for part in &mut parts {
            for row in part.rows.clone() {
                part.row(row, part.columns.clone()).iter_mut().for_each(|v| *v += 1.0);
            }
        }
        assert_eq!(matrix, vec![1.0; 35]);
    }
}
