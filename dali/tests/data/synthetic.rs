//! The synthetic data set: its statistics, its reproducibility, and the consistency of its files.

use std::collections::HashMap;

use dali::Store;
use dali::coco::{self, Segmentation};
use dali::store;
use dali::synthetic::{CLASS_NAMES, KEYPOINT_NAMES, SyntheticOptions, generate};
use tempfile::TempDir;

use crate::fixture::{assert_fails, assert_says, objects, rle_of};

/// CRC-32 of the store's files of objects and masks, for two images of seed 8, from a version
/// without keypoints. Pixels are not compared: they depend on a sine, whose rounding may differ
/// between machines.
const OLDER_MASKS: [u32; 4] = [0xA805_3F93, 0x6B06_6CE1, 0x949D_5123, 0x205F_2153];

fn generated(count: usize, seed: u64) -> (TempDir, SyntheticOptions) {
    generated_of(count, seed, 128, 128)
}

fn generated_of(count: usize, seed: u64, height: u32, width: u32) -> (TempDir, SyntheticOptions) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("shapes");
    let options = SyntheticOptions { count, seed, height, width, out, overwrite: false };
    generate(&options, &mut |_| ()).unwrap();
    (dir, options)
}

#[test]
fn synthetic_set_of_200_images_matches_statistics() {
    let (_dir, options) = generated(200, 1);
    let set = coco::read(&options.out.join("annotations.json")).unwrap();
    assert_eq!((set.images.len(), set.categories.len()), (200, 4));
    let mut per_image: HashMap<u64, usize> = HashMap::new();
    let mut per_class = [0usize; 4];
    let mut hidden = 0;
    let mut text = 0;
    let (mut least, mut most) = (f64::MAX, 0f64);
    for annotation in &set.annotations {
        *per_image.entry(annotation.image_id).or_default() += 1;
        per_class[annotation.category_id as usize - 1] += 1;
        assert!(annotation.area.unwrap() >= 40.0);
        let bbox = annotation.bbox.as_ref().unwrap();
        match annotation.segmentation.as_ref().unwrap() {
            // Only objects that are completely visible have an outline.
            Segmentation::Polygons(_) => {
                least = least.min(bbox[2]);
                most = most.max(bbox[2]);
                assert!((128.0 / 14.0 - 1.0..=64.0).contains(&bbox[2]), "{bbox:?}");
            }
            Segmentation::Runs { counts, .. } => {
                hidden += 1;
                text += usize::from(matches!(counts, coco::RunCounts::Text(_)));
                assert!(bbox[2] <= 64.0 && bbox[3] <= 64.0, "{bbox:?}");
            }
        }
    }
    let total = set.annotations.len();
    assert!(per_image.len() == 200 && per_image.values().all(|n| (2..=6).contains(n)));
    assert!((2..=6).all(|n| per_image.values().any(|&m| m == n)));
    assert!(total as f64 / 200.0 >= 3.5, "{total}");
    assert!(hidden as f64 / total as f64 >= 0.2, "{hidden} of {total}");
    assert!(text > 50 && hidden - text > 50, "both forms: {text} of {hidden}");
    assert!(per_class.iter().all(|&n| n as f64 / total as f64 > 0.18), "{per_class:?}");
    assert!(least < 20.0 && most >= 60.0, "{least} {most}");
}

/// The colour must be independent of the class: the mean colour of each class equals the overall
/// mean, within four standard errors for uniform colours.
#[test]
fn colour_is_independent_of_class_and_background_is_noisy() {
    let (_dir, options) = generated(200, 2);
    let store = Store::open(&options.out.join("store")).unwrap();
    let mut sums = [[0f64; 3]; 4];
    let mut counts = [0f64; 4];
    let mut rgb = Vec::new();
    for idx in 0..store.len() {
        store.decode_rgb(idx, &mut rgb).unwrap();
        for obj in store.image(idx).objects {
            let object = store.object(obj);
            if !matches!(object.segmentation, store::Segmentation::Polygons(_)) {
                continue;
            }
            // The centre of the box is inside each of the four shapes.
            let [x, y, w, h] = object.bbox_xywh;
            let at = ((y + h / 2.0) as usize * 128 + (x + w / 2.0) as usize) * 3;
            let class_idx = object.label as usize - 1;
            counts[class_idx] += 1.0;
            for (sum, &value) in sums[class_idx].iter_mut().zip(&rgb[at..at + 3]) {
                *sum += f64::from(value);
            }
        }
        // In the first row of pixels, where objects are rare, neighbouring pixels differ mainly by
        // the noise.
        let steps: Vec<f64> =
            (1..128).map(|x| f64::from(rgb[x * 3]) - f64::from(rgb[x * 3 - 3])).collect();
        let varied = steps.iter().filter(|step| step.abs() > 1.0).count();
        let clipped = rgb[..128 * 3].iter().step_by(3).filter(|&&v| v == 0 || v == 255).count();
        assert!(varied + clipped > 40, "image {idx}: {varied} {clipped}");
    }
    for (sum, count) in sums.iter().zip(counts) {
        assert!(count > 50.0, "{counts:?}");
        for channel in sum {
            let error = channel / count - 127.5;
            assert!(error.abs() < 4.0 * 73.9 / count.sqrt(), "{error} of {count}");
        }
    }
}

/// Polygon, area and box agree through COCO's rasteriser, so the drawing, the file and the store
/// have the same mask.
#[test]
fn synthetic_file_and_store_agree() {
    for (height, width) in [(128, 128), (64, 112), (112, 64)] {
        agree(height, width);
    }
}

fn agree(height: u32, width: u32) {
    let (_dir, options) = generated_of(40, 3, height, width);
    let set = coco::read(&options.out.join("annotations.json")).unwrap();
    let store = Store::open(&options.out.join("store")).unwrap();
    store.verify_all().unwrap();
    let names: Vec<&str> = store.header().categories.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, CLASS_NAMES);
    assert_eq!(store.header().num_annotations, set.annotations.len());
    for (obj, annotation) in set.annotations.iter().enumerate() {
        let object = store.object(obj);
        assert_eq!(object.annotation_id, annotation.id);
        let rle = rle_of(&object.segmentation, height, width);
        assert_eq!(hotcoco::mask::area(&rle) as f64, annotation.area.unwrap());
        let bbox = annotation.bbox.as_ref().unwrap();
        assert_eq!(&hotcoco::mask::to_bbox(&rle).to_vec(), bbox);
    }
}

#[test]
fn seed_gives_same_set_for_any_thread_count() {
    let read = |dir: &SyntheticOptions, name: &str| std::fs::read(dir.out.join(name)).unwrap();
    let (_a, first) = generated(20, 4);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let (_b, second) = pool.install(|| generated(20, 4));
    let (_c, other) = generated(20, 5);
    for name in ["annotations.json", "images/000000000020.jpg", "store/pixels.bin"] {
        assert!(read(&first, name) == read(&second, name), "{name}");
        assert!(read(&first, name) != read(&other, name), "{name}");
    }
}

#[test]
fn synthetic_prep_replaces_only_its_own_sets_if_asked() {
    let (dir, mut options) = generated(3, 6);
    let error = generate(&options, &mut |_| ()).unwrap_err().to_string();
    assert_says(&error, &["shapes", "exists already"]);
    options.overwrite = true;
    options.count = 2;
    let report = generate(&options, &mut |_| ()).unwrap();
    assert_eq!((report.num_images, report.out), (2, options.out.join("store")));
    assert_eq!(std::fs::read_dir(options.out.join("images")).unwrap().count(), 2);

    options.out = dir.path().join("photos");
    std::fs::create_dir_all(options.out.join("images")).unwrap();
    let error = generate(&options, &mut |_| ()).unwrap_err().to_string();
    assert_says(&error, &["photos", "not overwritten"]);
    assert!(options.out.join("images").is_dir());
    options.count = 0;
    assert_fails(generate(&options, &mut |_| ()), &["--count"]);
}

/// The visible keypoints of an object are within two pixels of its mask, and an object with a
/// polygon has no hidden keypoints.
#[test]
fn synthetic_keypoints_are_on_their_objects() {
    let (_dir, options) = generated(60, 7);
    let store = Store::open(&options.out.join("store")).unwrap();
    let keypoints = store.header().keypoints.as_ref().unwrap();
    assert_eq!(keypoints.names, KEYPOINT_NAMES);
    assert_eq!(keypoints.flipped(), [0, 2, 1, 3, 4]);
    assert_eq!(keypoints.skeleton, [[0, 4], [1, 4], [2, 4], [3, 4]]);
    assert_eq!(store.header().num_with_keypoints, store.header().num_annotations);
    let (mut hidden, mut seen) = (0, 0);
    for object in objects(&store) {
        let is_whole = matches!(object.segmentation, store::Segmentation::Polygons(_));
        let pixels = hotcoco::mask::decode(&rle_of(&object.segmentation, 128, 128));
        let is_near = |x: f32, y: f32| {
            let near = |at: f32| (at as usize).saturating_sub(2)..(at as usize + 3).min(128);
            near(x).any(|column| near(y).any(|row| pixels[column * 128 + row] == 1))
        };
        for &[x, y, visibility] in object.keypoints {
            let is_seen = visibility == 2.0;
            assert!(is_seen || visibility == 1.0 && !is_whole, "{object:?}");
            assert!(!is_seen || is_near(x, y), "{object:?}");
            seen += usize::from(is_seen);
            hidden += usize::from(!is_seen);
        }
        let [top, left, right, bottom, center] = object.keypoints else { panic!("five") };
        assert!(top[1] < center[1] && center[1] < bottom[1], "{object:?}");
        assert!(left[0] < center[0] && center[0] < right[0], "{object:?}");
        if is_whole {
            let [x, y, width, height] = object.bbox_xywh;
            let ends = [left[0] - x, top[1] - y, right[0] - x - width, bottom[1] - y - height];
            assert!(ends.iter().all(|far| far.abs() <= 1.0), "{object:?}");
        }
    }
    assert!(hidden * 20 > seen && hidden < seen, "{hidden} hidden, {seen} seen");
}

#[test]
fn older_synthetic_set_is_regenerated_with_same_masks() {
    let (_dir, mut options) = generated(2, 8);
    let read = |name: &str| std::fs::read(options.out.join(name)).unwrap();
    let objects = ["objects.bin", "parts.bin", "coords.bin", "runs.bin"];
    let masks = objects.map(|name| crc32fast::hash(&read(&format!("store/{name}"))));
    assert_eq!(masks, OLDER_MASKS);
    let sentence = |error: dali::DaliError| error.to_string();
    assert_says(&generate(&options, &mut |_| ()).map_err(sentence).unwrap_err(), &["same"]);
    let file = options.out.join("annotations.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen(", with keypoints\"", "\"", 1)).unwrap();
    let refused = generate(&options, &mut |_| ()).unwrap_err();
    assert!(matches!(refused, dali::DaliError::Exists { .. }), "{refused}");
    options.overwrite = true;
    generate(&options, &mut |_| ()).unwrap();
}
