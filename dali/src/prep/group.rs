//! Assigns annotations to images, and labels 1..K to categories. Annotations without an image or
//! category are dropped.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use super::keypoints;
use super::report::{DropReason, Noted, PrepReport};
use crate::coco::{self, Annotation, Dataset};
use crate::store::{Category, Keypoints};

/// The data set, grouped by image.
pub(super) struct Groups {
    /// Sorted by COCO id, labels 1..K.
    pub(super) categories: Vec<Category>,
    pub(super) keypoints: Option<Keypoints>,
    /// Sorted by image id, the order of pycocotools and torchvision.
    pub(super) tasks: Vec<ImageTask>,
    /// Report so far: dropped annotations, and likely mistakes in images and categories.
    pub(super) report: PrepReport,
}

/// One image with its annotations and their labels, in file order.
pub(super) struct ImageTask {
    pub(super) image: coco::Image,
    pub(super) annotations: Vec<(u32, Annotation)>,
}

pub(super) fn group(dataset: Dataset) -> Groups {
    let root = dataset.root();
    let Dataset { mut images, annotations, mut categories } = dataset;
    images.sort_by_key(|image| image.id);
    categories.sort_by_key(|category| category.id);
    let root = categories.iter().position(|category| Some(category.id) == root);
    let root = root.map(|at| categories.remove(at));
    let shared_files = shared_files(&images);
    let (keypoints, keypoints_doubt) = keypoints::of_dataset(&categories, &annotations);
    let label_of: HashMap<u64, u32> =
        categories.iter().map(|category| category.id).zip(1..).collect();
    let task_of: HashMap<u64, usize> = images.iter().map(|image| image.id).zip(0..).collect();
    let mut tasks: Vec<ImageTask> =
        images.into_iter().map(|image| ImageTask { image, annotations: Vec::new() }).collect();

    let mut dropped: BTreeMap<DropReason, Noted> = BTreeMap::new();
    let mut drop = |reason, id| dropped.entry(reason).or_default().note(id);
    let mut seen = HashSet::with_capacity(annotations.len());
    let mut of_image = HashSet::with_capacity(annotations.len());
    let mut next = annotations.iter().map(|annotation| annotation.id).max();
    for mut annotation in annotations {
        let id = annotation.id;
        if !of_image.insert((annotation.image_id, id)) {
            drop(DropReason::RepeatedId, id);
            continue;
        }
        // Some tools number the annotations of each image from 1: repeated ids in later images are
        // replaced.
        if !seen.insert(id) {
            next = next.and_then(|last| last.checked_add(1));
            let Some(next) = next else {
                drop(DropReason::RepeatedId, id);
                continue;
            };
            annotation.id = next;
        }
        let task = task_of.get(&annotation.image_id);
        match (task, label_of.get(&annotation.category_id)) {
            (None, _) => drop(DropReason::UnknownImage, id),
            (_, None) => drop(DropReason::UnknownCategory, id),
            (Some(&task), Some(&label)) => tasks[task].annotations.push((label, annotation)),
        }
    }
    let categories = categories
        .into_iter()
        .zip(1..)
        .map(|(category, label)| Category { name: category.name, coco_id: category.id, label })
        .collect();
    let report = PrepReport {
        dropped,
        shared_files,
        num_keypoints: keypoints.as_ref().map_or(0, |keypoints| keypoints.names.len()),
        keypoints_doubt,
        root: root.map(|of| format!("{:?} (id {})", of.name, of.id)),
        ..PrepReport::default()
    };
    Groups { categories, keypoints, tasks, report }
}

/// The images whose file is also that of an earlier image, even if the path is written differently
/// (`./a.jpg`).
fn shared_files(images: &[coco::Image]) -> Noted {
    let mut noted = Noted::default();
    let mut seen = HashSet::with_capacity(images.len());
    for image in images {
        let parts = Path::new(&image.file_name).components();
        let path: PathBuf = parts.filter(|part| *part != Component::CurDir).collect();
        if !seen.insert(path) {
            noted.note(image.id);
        }
    }
    noted
}
