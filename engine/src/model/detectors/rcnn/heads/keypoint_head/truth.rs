//! The annotated keypoints of a batch, transformed to the network's images.

use dali::DaliError;
use dali::loader::ImageRows;
use dali::store::{ObjectView, Stores};
use kernels::view::{Axis, View};

use super::{KEYPOINTS, Keys};

/// Fills an image's row `[G, K, 3]` with each object's [`seen_keypoints`].
pub(super) fn fill(
    config: &Keys,
    offset: f32,
    store: &Stores,
    objects: &[ObjectView<'_>],
    rows: &mut ImageRows<'_>,
) -> Result<(), DaliError> {
    let Some(known) = &store.contents().keypoints else { return Ok(()) };
    let views: &mut [i32] = rows.row_mut("views")?;
    let partners = known.partners(config.flip_pairs.as_deref());
    // Invalid pairs were rejected when the data was opened.
    let (view, partners) = (View::of(views, 0), partners.unwrap_or_else(|_| known.flipped()));
    let row: &mut [f32] = rows.row_mut(KEYPOINTS)?;
    for (row, object) in row.chunks_exact_mut(3 * config.keypoints).zip(objects) {
        let seen = seen_keypoints(object.keypoints, &partners, &view, offset);
        row.iter_mut().zip(seen.as_flattened()).for_each(|(to, from)| *to = *from);
    }
    Ok(())
}

/// Transforms an object's keypoints to the network's image. A keypoint that is labelled and inside
/// the image becomes (x, y, 1) in network pixels, any other keypoint zeros. In a flipped image
/// keypoint k is taken from `partners[k]`. `offset`, in source pixels, is added to the annotated
/// coordinates.
///
/// Matches detectron2's `transform_keypoint_annotations`, and torchvision's
/// `_flip_coco_person_keypoints` and `resize_keypoints`.
///
/// # Panics
/// If a partner is not a keypoint index.
#[must_use]
pub fn seen_keypoints(
    keypoints: &[[f32; 3]],
    partners: &[usize],
    view: &View,
    offset: f32,
) -> Vec<[f32; 3]> {
    let is_mirrored = (view.x.mirrored + view.y.mirrored + view.transposed) % 2 == 1;
    let place = |k: usize| if is_mirrored { partners[k] } else { k };
    let points = (0..keypoints.len()).map(|k| keypoints[place(k)]);
    points.map(|point| seen(view, point, offset).unwrap_or_default()).collect()
}

/// A source keypoint in network pixels, if it is labelled and inside the network's image.
fn seen(view: &View, [x, y, label]: [f32; 3], offset: f32) -> Option<[f32; 3]> {
    // Transformed like the corners of a box: flipped in the source, then resized.
    let place = |v: f32, axis: Axis| axis.place_ends(v, v, false)[0];
    let [y, x] = view.turned([place(y + offset, view.y), place(x + offset, view.x)]);
    let [height, width] = view.network().map(|side| side as f32);
    let is_seen = label > 0.0 && (0.0..=width).contains(&x) && (0.0..=height).contains(&y);
    is_seen.then_some([x, y, 1.0])
}

#[cfg(test)]
mod tests {
    use kernels::view::{Axis, View};

    use super::{seen, seen_keypoints};

    /// An image of 10 x 20 pixels at double size: unchanged, flipped, cropped to its right half,
    /// and rotated.
    #[test]
    fn keypoints_are_transformed_with_their_image() {
        let mut view = View::whole([10, 20], [20, 40]);
        assert_eq!(seen(&view, [3.0, 4.0, 2.0], 0.0), Some([6.0, 8.0, 1.0]));
        assert_eq!(seen(&view, [3.0, 4.0, 1.0], 0.5), Some([7.0, 9.0, 1.0]));
        assert_eq!(seen(&view, [3.0, 4.0, 0.0], 0.0), None, "not labelled");
        assert_eq!(seen(&view, [21.0, 4.0, 2.0], 0.0), None, "outside");
        view.x.mirrored = 1;
        assert_eq!(seen(&view, [3.0, 4.0, 2.0], 0.0), Some([34.0, 8.0, 1.0]));
        view.x = Axis { start: 10, window: 10, resized: 20, network: 20, mirrored: 0, ..view.x };
        assert_eq!(seen(&view, [13.0, 4.0, 2.0], 0.0), Some([6.0, 8.0, 1.0]));
        assert_eq!(seen(&view, [3.0, 4.0, 2.0], 0.0), None, "left of the view");
        view.turn(1);
        assert_eq!(seen(&view, [13.0, 4.0, 2.0], 0.0), Some([8.0, 14.0, 1.0]));
    }

    /// Left and right keypoints are swapped in a flipped image, but not in a rotated one.
    #[test]
    fn flip_swaps_paired_keypoints() {
        let points = [[1.0, 2.0, 2.0], [9.0, 3.0, 1.0], [5.0, 5.0, 0.0]];
        let mut view = View::whole([10, 10], [10, 10]);
        let seen = |view: &View| seen_keypoints(&points, &[1, 0, 2], view, 0.0);
        assert_eq!(seen(&view), [[1.0, 2.0, 1.0], [9.0, 3.0, 1.0], [0.0; 3]]);
        view.x.mirrored = 1;
        assert_eq!(seen(&view), [[1.0, 3.0, 1.0], [9.0, 2.0, 1.0], [0.0; 3]]);
        view.y.mirrored = 1;
        assert_eq!(seen(&view), [[9.0, 8.0, 1.0], [1.0, 7.0, 1.0], [0.0; 3]], "half a turn");
    }
}
