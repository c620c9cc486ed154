//! The classes of a model: the category of each output of its classifier.
//!
//! A class is an index from 1; 0 is the background. A list of classes holds the name and COCO id of
//! each class, from class 1.

use std::collections::HashMap;

use dali::plain;

/// In-memory name of a class without a category: NUL, which is never a category's name.
pub const NO_CATEGORY: &str = "\0";
/// Name of a class without a category in torchvision and in checkpoints. A real category may also
/// have this name.
pub const NOT_AVAILABLE: &str = "N/A";

/// The classes of a model with `num_classes` classes (0: one per category) that is trained on data
/// with these categories.
///
/// If there are more classes than categories, and all category ids are valid classes, the ids are
/// the classes, as in torchvision's models with 91 outputs (background included) for COCO's 80
/// categories. Otherwise the categories are numbered in order.
pub fn classes_of_data(categories: &[(String, u64)], num_classes: usize) -> Vec<(String, u64)> {
    let (count, ids) = (num_classes as u64, categories.iter().map(|(_, id)| *id));
    let is_sparse = num_classes > categories.len();
    if !is_sparse || !ids.clone().all(|id| (1..=count).contains(&id)) {
        return categories.to_vec();
    }
    let named: HashMap<u64, &String> = categories.iter().map(|(name, id)| (*id, name)).collect();
    let named = |id| named.get(&id).map(|name| (name.to_string(), id));
    let last = ids.max().unwrap_or(0);
    (1..=last).map(|id| named(id).unwrap_or_else(|| (NO_CATEGORY.to_string(), id))).collect()
}

/// The classes as stored in `checkpoint.json`: [`NO_CATEGORY`] becomes [`NOT_AVAILABLE`].
pub fn stored_classes(classes: &[(String, u64)]) -> Vec<(String, u64)> {
    let stored = |name: &str| if name == NO_CATEGORY { NOT_AVAILABLE } else { name }.to_string();
    classes.iter().map(|(name, id)| (stored(name), *id)).collect()
}

/// True if two lists of classes are equal. A class without a category and a category named
/// [`NOT_AVAILABLE`] count as equal, since some files do not distinguish them.
pub fn are_same(ours: &[(String, u64)], theirs: &[(String, u64)]) -> bool {
    stored_classes(ours) == stored_classes(theirs)
}

/// The classes of a model whose file does not name them: COCO's if there are 90, as in
/// torchvision's published models, else `class N`.
pub fn classes_by_number(num_classes: usize) -> Vec<(String, u64)> {
    let is_coco = num_classes == COCO.len();
    let name = |class: usize| match is_coco {
        true if COCO[class - 1] == NOT_AVAILABLE => NO_CATEGORY.to_string(),
        true => COCO[class - 1].to_string(),
        false => format!("class {class}"),
    };
    (1..=num_classes).map(|class| (name(class), class as u64)).collect()
}

/// COCO's categories as the classes of a model with `num_classes` classes: 90 are numbered by id,
/// 80 in order; `None` for any other number.
pub fn coco_classes(num_classes: usize) -> Option<Vec<(String, u64)>> {
    let mut all = classes_by_number(COCO.len());
    if num_classes < all.len() {
        all.retain(|(name, _)| name != NO_CATEGORY);
    }
    (all.len() == num_classes).then_some(all)
}

/// The reason why the `num_classes` unnamed classes of a model cannot be assumed to be the data's
/// classes `classes` ([`classes_of_data`]); `None` if they can. `data` names the data in the
/// message.
///
/// They can if there are as many classes as categories, or if all category ids are valid classes.
/// 90 classes are assumed to be COCO's, so the data's names must then equal COCO's, ignoring case.
pub fn why_unlike(num_classes: usize, classes: &[(String, u64)], data: &str) -> Option<String> {
    let mut ids = classes.iter().map(|(_, id)| *id);
    if classes.len() != num_classes && !ids.all(|id| (1..=num_classes as u64).contains(&id)) {
        let theirs = classes.len();
        return Some(format!(
            "{data} has {theirs} classes, whose ids are not all between 1 and {num_classes}"
        ));
    }
    if num_classes != COCO.len() {
        return None;
    }
    let others = || {
        let named = COCO.iter().zip(classes).zip(1..);
        named.filter(|((coco, (name, _)), _)| {
            name != NO_CATEGORY && !name.eq_ignore_ascii_case(coco)
        })
    };
    // Prefers to report a class that has a different name in COCO over one that COCO lacks.
    let named = others().find(|((coco, _), _)| **coco != NOT_AVAILABLE);
    let ((coco, (name, id)), class) = named.or_else(|| others().next())?;
    let theirs = match *coco {
        NOT_AVAILABLE => "no category".to_string(),
        coco => format!("`{coco}`"),
    };
    Some(format!("class {class} is {theirs} in COCO, but `{name}` (id {id}) in {data}"))
}

/// The number of classes, and the names and COCO ids of the first few and the last, in one line.
pub fn describe_classes(classes: &[(String, u64)]) -> String {
    const FIRST: usize = 3;
    let named: Vec<String> = classes
        .iter()
        .enumerate()
        .filter(|(_, (name, _))| name != NO_CATEGORY)
        .map(|(i, (name, id))| format!("{} {} (id {id})", i + 1, plain(name)))
        .collect();
    let text = match named.as_slice() {
        [first @ .., last] if first.len() > FIRST => {
            format!("{}, .. {last}", first[..FIRST].join(", "))
        }
        all => all.join(", "),
    };
    format!("{} classes: {text}", named.len())
}

/// COCO's categories by id, from 1.
const COCO: [&str; 90] = [
    "person",
    "bicycle",
    "car",
    "motorcycle",
    "airplane",
    "bus",
    "train",
    "truck",
    "boat",
    "traffic light",
    "fire hydrant",
    "N/A",
    "stop sign",
    "parking meter",
    "bench",
    "bird",
    "cat",
    "dog",
    "horse",
    "sheep",
    "cow",
    "elephant",
    "bear",
    "zebra",
    "giraffe",
    "N/A",
    "backpack",
    "umbrella",
    "N/A",
    "N/A",
    "handbag",
    "tie",
    "suitcase",
    "frisbee",
    "skis",
    "snowboard",
    "sports ball",
    "kite",
    "baseball bat",
    "baseball glove",
    "skateboard",
    "surfboard",
    "tennis racket",
    "bottle",
    "N/A",
    "wine glass",
    "cup",
    "fork",
    "knife",
    "spoon",
    "bowl",
    "banana",
    "apple",
    "sandwich",
    "orange",
    "broccoli",
    "carrot",
    "hot dog",
    "pizza",
    "donut",
    "cake",
    "chair",
    "couch",
    "potted plant",
    "bed",
    "N/A",
    "dining table",
    "N/A",
    "N/A",
    "toilet",
    "N/A",
    "tv",
    "laptop",
    "mouse",
    "remote",
    "keyboard",
    "cell phone",
    "microwave",
    "oven",
    "toaster",
    "sink",
    "refrigerator",
    "N/A",
    "book",
    "clock",
    "vase",
    "scissors",
    "teddy bear",
    "hair drier",
    "toothbrush",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn coco() -> Vec<(String, u64)> {
        let all = classes_by_number(90);
        all.into_iter().filter(|(name, _)| name != NO_CATEGORY).collect()
    }

    /// torchvision's 91 outputs are numbered by COCO id; numbered by position, class 27 would have
    /// id 31, and class 80 id 90.
    #[test]
    fn ninety_classes_on_coco_map_to_category_ids() {
        let categories = coco();
        assert_eq!(categories.len(), 80);
        let classes = classes_of_data(&categories, 90);
        assert_eq!(classes.len(), 90);
        assert!(classes.iter().zip(1..).all(|((_, id), class)| *id == class));
        assert_eq!(classes[26], ("backpack".to_string(), 27));
        assert_eq!(classes[11], (NO_CATEGORY.to_string(), 12));
        assert_eq!(classes, classes_by_number(90));
        for positions in [0, 80, 85] {
            assert_eq!(classes_of_data(&categories, positions), categories);
        }
        assert_eq!((categories[26].1, categories[79].1), (31, 90));
    }

    #[test]
    fn unused_class_numbers_have_no_category() {
        let categories = |ids: &[u64]| -> Vec<(String, u64)> {
            ids.iter().map(|id| (format!("c{id}"), *id)).collect()
        };
        assert_eq!(classes_of_data(&categories(&[1, 2, 3]), 9), categories(&[1, 2, 3]));
        let gap = classes_of_data(&categories(&[1, 3]), 9);
        assert_eq!(
            gap.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["c1", NO_CATEGORY, "c3"]
        );
        // Ids without a class: 0, which is the background, and one above the number of classes.
        for ids in [[0, 1], [1, 10]] {
            assert_eq!(classes_of_data(&categories(&ids), 9), categories(&ids));
        }
    }

    /// If 80 categories were numbered in order, all classes from the 12th on would be wrong.
    #[test]
    fn ninety_unnamed_classes_are_assumed_to_be_coco() {
        let why = |categories: &[(String, u64)], num_classes| {
            why_unlike(num_classes, &classes_of_data(categories, num_classes), "store")
        };
        assert_eq!(why(&coco(), 90), None);
        let upper: Vec<_> = coco().into_iter().map(|(n, id)| (n.to_uppercase(), id)).collect();
        assert_eq!(why(&upper[..7], 90), None);
        let renumbered: Vec<_> = coco().into_iter().map(|(n, _)| n).zip(1..).collect();
        let told = why(&renumbered, 90);
        let expected = "class 13 is `stop sign` in COCO, but `parking meter` (id 13) in store";
        assert_eq!(told.as_deref(), Some(expected));
        assert_eq!(why(&renumbered, 80), None, "as many");
        assert_eq!(why(&[("square".into(), 1)], 5), None, "only 90 are known");
        let gap = why(&[("person".into(), 1), ("hat".into(), 26)], 90);
        let expected = "class 26 is no category in COCO, but `hat` (id 26) in store";
        assert_eq!(gap.as_deref(), Some(expected));
    }

    #[test]
    fn unnamed_90_or_80_class_models_are_assumed_to_be_coco() {
        assert_eq!(coco_classes(80), Some(coco()));
        assert_eq!(coco_classes(90), Some(classes_by_number(90)));
        assert_eq!((coco_classes(20), coco_classes(81)), (None, None));
    }

    #[test]
    fn category_can_share_a_name_with_an_unmapped_class() {
        let categories = [("N/A".to_string(), 1), ("cat".to_string(), 3)];
        let classes = classes_of_data(&categories, 4);
        assert_eq!(classes[0].0, "N/A");
        assert_eq!(classes[1], (NO_CATEGORY.to_string(), 2));
        let text = describe_classes(&classes);
        assert_eq!(text, "2 classes: 1 N/A (id 1), 3 cat (id 3)");
        let stored = stored_classes(&classes);
        assert_eq!(stored[1], ("N/A".to_string(), 2));
        assert!(are_same(&classes, &stored) && !are_same(&classes, &classes[..2]));
    }

    #[test]
    fn class_summary_lists_first_and_last() {
        let text = describe_classes(&classes_by_number(90));
        assert!(text.starts_with("80 classes: 1 person (id 1), 2 bicycle (id 2), "), "{text}");
        assert!(text.ends_with(", .. 90 toothbrush (id 90)"), "{text}");
        let two = describe_classes(&[("cat".into(), 7), ("dog".into(), 9)]);
        assert_eq!(two, "2 classes: 1 cat (id 7), 2 dog (id 9)");
        assert_eq!(classes_by_number(2)[1], ("class 2".to_string(), 2));
    }
}
