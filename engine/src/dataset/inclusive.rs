//! Ground-truth boxes for `model.boxes.legacy_plus_one`: corners are inclusive pixel indices, as in
//! maskrcnn-benchmark.

use dali::DaliError;
use dali::loader::ImageRows;
use dali::store::{ImageRecord, ObjectView, Stores};

use crate::rows::keep_objects;

/// Converts a COCO box (x, y, width, height) to inclusive pixel corners (x1, y1, x2, y2), clipped
/// to the image, like `BoxList.convert("xyxy")` and `clip_to_image`. `None` for a box without area,
/// which training ignores.
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

/// An image, and its objects that have rows in a batch, in order: all except crowds and, if boxes
/// are `inclusive`, boxes without area.
pub(crate) fn objects_with_rows(
    store: &Stores,
    image: usize,
    inclusive: bool,
) -> (ImageRecord, Vec<ObjectView<'_>>) {
    let record = store.image(image);
    let has_row = |object: &ObjectView<'_>| {
        let bounds = inclusive_box(object.bbox_xywh, record.height, record.width);
        !object.crowd && (!inclusive || bounds.is_some())
    };
    let objects = record.objects.clone().map(|i| store.object(i)).filter(has_row).collect();
    (record, objects)
}

/// Converts the boxes in an image's rows to inclusive ones, and removes the rows of boxes without
/// area.
pub(crate) fn make_inclusive(
    store: &Stores,
    image: usize,
    rows: &mut ImageRows<'_>,
) -> Result<(), DaliError> {
    let record = store.image(image);
    let (height, width) = (record.height, record.width);
    // The loader fills one row per object that is not a crowd, in the store's order.
    let objects = record.objects.map(|i| store.object(i)).filter(|object| !object.crowd);
    let boxes: Vec<_> = objects.map(|o| inclusive_box(o.bbox_xywh, height, width)).collect();
    let left: Vec<usize> = (0..boxes.len()).filter(|&i| boxes[i].is_some()).collect();
    let row: &mut [f32] = rows.row_mut("gt_boxes")?;
    for (row, corners) in row.chunks_mut(4).zip(&boxes) {
        row.copy_from_slice(&corners.unwrap_or_default());
    }
    keep_objects(rows, &left)
}

#[cfg(test)]
mod tests {
    use super::inclusive_box;

    /// The image is 10 x 20 (height x width).
    #[test]
    fn inclusive_corners_are_inside_image() {
        let inclusive = |bbox| inclusive_box(bbox, 10, 20);
        assert_eq!(inclusive([2.0, 3.0, 5.0, 4.0]), Some([2.0, 3.0, 6.0, 6.0]));
        assert_eq!(inclusive([-1.5, 3.0, 30.0, 9.0]), Some([0.0, 3.0, 19.0, 9.0]));
        for without_extent in [[2.0, 3.0, 1.0, 4.0], [2.0, 3.0, 4.0, 0.5], [25.0, 3.0, 4.0, 4.0]] {
            assert_eq!(inclusive(without_extent), None);
        }
    }
}
