//! Keypoints: which ones the objects of a store have, and those of one annotation.

use super::report::Finding;
use crate::coco::{Annotation, Category};
use crate::store::{Keypoints, MAX_KEYPOINTS, is_sound};

/// The keypoints of all objects, if categories name some and an annotation has some, and why there
/// are none although it has.
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
            "keypoints were left out: the categories {:?} and {:?} name different ones, and a \
             store has one list of them",
            first.name, other.name
        );
        return (None, Some(doubt));
    }
    let count = first.keypoints.len();
    if count > MAX_KEYPOINTS {
        let doubt = format!(
            "keypoints were left out: the category {:?} names {count}, and a store has at most \
             {MAX_KEYPOINTS}",
            first.name
        );
        return (None, Some(doubt));
    }
    let skeleton = skeleton(&first.skeleton, count);
    (Some(Keypoints { names: first.keypoints.clone(), skeleton }), None)
}

/// The pairs, counted from 0, that lie among so many keypoints. Some tools count them from 0
/// already, which a 0 tells.
fn skeleton(pairs: &[[u32; 2]], count: usize) -> Vec<[usize; 2]> {
    let first = usize::from(pairs.iter().flatten().all(|end| *end > 0));
    let ends = pairs.iter().map(|pair| pair.map(|end| end as usize - first));
    ends.filter(|pair| pair.iter().all(|end| *end < count)).collect()
}

/// `count` keypoints, x, y and visibility; one of visibility 0 is all zeros, as are all of an
/// annotation that has none, or a list that is not to be trusted.
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

    fn category(names: &[&str], skeleton: &[[u32; 2]]) -> Category {
        let keypoints = names.iter().map(ToString::to_string).collect();
        let (name, skeleton) = ("ant".into(), skeleton.into());
        Category { id: 1, name, keypoints, skeleton, supercategory: None }
    }

    #[test]
    fn a_skeleton_is_counted_from_0_and_stays_among_the_keypoints() {
        assert_eq!(skeleton(&[[1, 2], [3, 2], [4, 1]], 3), [[0, 1], [2, 1]]);
        assert_eq!(skeleton(&[[0, 1], [2, 1], [u32::MAX, 1]], 3), [[0, 1], [2, 1]]);
        assert!(skeleton(&[], 3).is_empty());
    }

    #[test]
    fn lists_that_are_not_to_be_trusted_become_zeros() {
        let bad: [&[f64]; 5] = [
            &[1.0, 2.0, 2.0],
            &[1.0, 2.0, 2.0, 3.0, 4.0, 1.0, 9.0],
            &[1.0, 2.0, 2.0, 3.0, 4.0, 0.5],
            &[1.0, 2.0, 2.0, 3.0, 1e300, 0.0],
            &[1.0, 2.0, 2.0, 3.0, 4.0, 3.0],
        ];
        for list in bad {
            let found = clean(Some(list), 2);
            assert_eq!(found, (vec![[0.0; 3]; 2], Some(Finding::BadKeypoints)), "{list:?}");
        }
        assert_eq!(clean(None, 2), (vec![[0.0; 3]; 2], None));
        assert_eq!(clean(Some(&[]), 2), (vec![[0.0; 3]; 2], None));
        let sound = clean(Some(&[-4.5, 2.0, 1.0, 7.0, 9.0, 0.0]), 2);
        assert_eq!(sound, (vec![[-4.5, 2.0, 1.0], [0.0; 3]], None));
    }

    #[test]
    fn keypoints_are_those_that_all_categories_name() {
        let annotations = |list: &str| -> Vec<Annotation> {
            let text =
                format!(r#"[{{"id": 1, "image_id": 1, "category_id": 1, "keypoints": {list}}}]"#);
            serde_json::from_str(&text).expect("an annotation")
        };
        let of = |categories: &[Category], list: &str| of_dataset(categories, &annotations(list));
        let ant = category(&["head", "tail"], &[[1, 2]]);
        let bare = category(&[], &[[1, 2]]);
        let (kept, doubt) = of(&[bare.clone(), ant.clone(), ant.clone()], "[1, 2, 2]");
        let names = vec!["head".to_string(), "tail".to_string()];
        assert_eq!((kept, doubt), (Some(Keypoints { names, skeleton: vec![[0, 1]] }), None));
        for (categories, list) in [([&ant], "null"), ([&ant], "[]"), ([&bare], "[1, 2, 2]")] {
            assert_eq!(of(&categories.map(Clone::clone), list), (None, None), "{list}");
        }
        let (kept, doubt) = of(&[ant, category(&["tail"], &[])], "[1, 2, 2]");
        assert!(kept.is_none() && doubt.expect("a doubt").contains("name different ones"));
        let many = category(&["a"; MAX_KEYPOINTS + 1], &[]);
        assert!(of(&[many], "[1, 2, 2]").1.expect("a doubt").contains("1025, and a store has"));
    }
}
