//! Ground truth under `model.boxes.legacy_plus_one`: corners are pixels, as in maskrcnn-benchmark.

use dali::DaliError;
use dali::loader::ImageRows;
use dali::store::Store;

/// Corners (x1, y1, x2, y2) of a COCO box (x, y, width, height) as inclusive pixels of its image,
/// whose first and last pixels bound them: `BoxList.convert("xyxy")` and `clip_to_image`. `None`
/// for a box that then has no extent, which training leaves out.
pub fn inclusive_box(
    [x, y, width, height]: [f32; 4],
    image_height: u32,
    image_width: u32,
) -> Option<[f32; 4]> {
    let [right, bottom] = [image_width, image_height].map(|side| side as f32 - 1.0);
    let x2 = x + (width - 1.0).max(0.0);
    let y2 = y + (height - 1.0).max(0.0);
    let clipped =
        [x.clamp(0.0, right), y.clamp(0.0, bottom), x2.clamp(0.0, right), y2.clamp(0.0, bottom)];
    (clipped[3] > clipped[1] && clipped[2] > clipped[0]).then_some(clipped)
}

/// Replaces the boxes of an image's rows by inclusive ones, and closes up over those left out.
pub(crate) fn make_inclusive(
    store: &Store,
    image: usize,
    rows: &mut ImageRows<'_>,
) -> Result<(), DaliError> {
    let record = store.image(image);
    let (height, width) = (record.height, record.width);
    // The loader's rows hold the objects that are no crowds, in the store's order.
    let objects = record.objects.map(|i| store.object(i)).filter(|object| !object.crowd);
    let boxes: Vec<_> = objects.map(|o| inclusive_box(o.bbox_xywh, height, width)).collect();
    let left: Vec<usize> = (0..boxes.len()).filter(|&i| boxes[i].is_some()).collect();
    let corners: Vec<f32> = boxes.iter().flatten().flatten().copied().collect();
    let row: &mut [f32] = rows.row_mut("gt_boxes")?;
    row.fill(0.0);
    row[..corners.len()].copy_from_slice(&corners);
    close_up(rows.row_mut("gt_classes")?, 1, &left);
    close_up(rows.row_mut("segm_index")?, 3, &left);
    let counts: &mut [i32] = rows.row_mut("gt_counts")?;
    counts[0] = left.len() as i32;
    Ok(())
}

/// Moves the rows `left` (ascending), each of `width` values, to the front and clears the rest.
fn close_up(values: &mut [i32], width: usize, left: &[usize]) {
    for (to, &from) in left.iter().enumerate() {
        values.copy_within(from * width..(from + 1) * width, to * width);
    }
    values[left.len() * width..].fill(0);
}

#[cfg(test)]
mod tests {
    use super::{close_up, inclusive_box};

    /// In an image of 10 x 20 (height x width).
    #[test]
    fn corners_are_pixels_of_the_image() {
        let inclusive = |bbox| inclusive_box(bbox, 10, 20);
        assert_eq!(inclusive([2.0, 3.0, 5.0, 4.0]), Some([2.0, 3.0, 6.0, 6.0]));
        assert_eq!(inclusive([-1.5, 3.0, 30.0, 9.0]), Some([0.0, 3.0, 19.0, 9.0]));
        for without_extent in [[2.0, 3.0, 1.0, 4.0], [2.0, 3.0, 4.0, 0.5], [25.0, 3.0, 4.0, 4.0]] {
            assert_eq!(inclusive(without_extent), None);
        }
    }

    #[test]
    fn rows_close_up() {
        let mut values = [1, 1, 2, 2, 3, 3, 4, 4, 0, 0];
        close_up(&mut values, 2, &[1, 3]);
        assert_eq!(values, [2, 2, 4, 4, 0, 0, 0, 0, 0, 0]);
    }
}
