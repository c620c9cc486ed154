//! The rows of an image's objects in a batch.

use dali::DaliError;
use dali::loader::ImageRows;

/// Keeps only the rows of the objects at these indices (ascending), and moves them to the front.
pub(crate) fn keep_objects(rows: &mut ImageRows<'_>, left: &[usize]) -> Result<(), DaliError> {
    close_up::<f32>(rows.row_mut("gt_boxes")?, 4, left);
    close_up::<i32>(rows.row_mut("gt_classes")?, 1, left);
    close_up::<i32>(rows.row_mut("segm_index")?, 3, left);
    let counts: &mut [i32] = rows.row_mut("gt_counts")?;
    counts[0] = left.len() as i32;
    Ok(())
}

/// Moves the rows with indices `left` (ascending) to the front, and clears the rest. A row has
/// `width` values.
fn close_up<T: Copy + Default>(values: &mut [T], width: usize, left: &[usize]) {
    for (to, &from) in left.iter().enumerate() {
        values.copy_within(from * width..(from + 1) * width, to * width);
    }
    values[left.len() * width..].fill(T::default());
}

#[cfg(test)]
mod tests {
    use super::close_up;

    #[test]
    fn kept_rows_move_to_front_and_rest_is_cleared() {
        let mut values = [1, 1, 2, 2, 3, 3, 4, 4, 0, 0];
        close_up(&mut values, 2, &[1, 3]);
        assert_eq!(values, [2, 2, 4, 4, 0, 0, 0, 0, 0, 0]);
    }
}
