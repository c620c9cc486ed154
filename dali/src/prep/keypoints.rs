//! The keypoint names of a data set, and the keypoints of one annotation.

use super::report::Finding;
use crate::coco::{Annotation, Category};
use crate::store::{Keypoints, MAX_KEYPOINTS, is_sound};

/// The keypoint names and skeleton for all objects, if the categories list keypoints and an
/// annotation has some. If keypoints must be omitted, a message with the reason instead.
pub(super) fn of_dataset(
    categories: &[Category],
    annotations: &[Annotation],
) -> (Option<Keypoints>, Option<String>) {
    let mut named = categories.iter().filter(|category| !category.keypoints.is_empty());
    let has_some = |a: &Annotation| a.keypoints.as_ref().is_some_and(|list| !list.is_empty());
    let (Some(first), true) = (named.next(), annotations.iter().any(has_some)) else {
        return (None, None);
    };
    if let Some(other) = named.find(|other| other.keypoints != first.keypoints) {
        let doubt = format!(
            "keypoints were left out: the categories {:?} and {:?} have different keypoints, \
             but a store has one list for all",
            first.name, other.name
        );
        return (None, Some(doubt));
    }
    let count = first.keypoints.len();
    if count > MAX_KEYPOINTS {
        let doubt = format!(
            "keypoints were left out: the category {:?} has {count}, but a store has at most \
             {MAX_KEYPOINTS}",
            first.name
        );
        return (None, Some(doubt));
    }
    let skeleton = skeleton(&first.skeleton, count);
    (Some(Keypoints { names: first.keypoints.clone(), skeleton }), None)
}

/// The pairs of valid keypoint indices, counted from 0, for `count` keypoints. In the file indices
/// count from 1, unless one of them is 0.
fn skeleton(pairs: &[[u32; 2]], count: usize) -> Vec<[usize; 2]> {
    let first = usize::from(pairs.iter().flatten().all(|end| *end > 0));
    let ends = pairs.iter().map(|pair| pair.map(|end| end as usize - first));
    ends.filter(|pair| pair.iter().all(|end| *end < count)).collect()
}

/// The x, y and visibility of `count` keypoints. A keypoint with visibility 0 becomes all zeros; so
/// do all keypoints if the annotation has none or its list is invalid.
pub(super) fn clean(list: Option<&[f64]>, count: usize) -> (Vec<[f32; 3]>, Option<Finding>) {
    let none = vec![[0.0; 3]; count];
    let list = list.unwrap_or_default();
    if list.is_empty() {
        return (none, None);
    }
    let narrow = |values: &[f64; 3]| match values.map(|value| value as f32) {
        [x, y, 0.0] if x.is_finite() && y.is_finite() => [0.0; 3],
        keypoint => keypoint,
    };
    let (given, rest) = list.as_chunks::<3>();
    let given: Vec<[f32; 3]> = given.iter().map(narrow).collect();
    match given.len() == count && rest.is_empty() && given.iter().all(is_sound) {
        true => (given, None),
        false => (none, Some(Finding::BadKeypoints)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skeleton_indices_start_at_0_and_are_in_range() {
        assert_eq!(skeleton(&[[1, 2], [3, 2], [4, 1]], 3), [[0, 1], [2, 1]]);
        assert_eq!(skeleton(&[[0, 1], [2, 1], [u32::MAX, 1]], 3), [[0, 1], [2, 1]]);
        assert!(skeleton(&[], 3).is_empty());
    }
}
