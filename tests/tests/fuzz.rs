//! Broken input of every kind that is read from files is used or rejected with an error, without a
//! panic, a hang, or unbounded memory.
//!
//! Each target runs for one second or for `ONEGRAPH_FUZZ_SECONDS`; `ONEGRAPH_FUZZ_SEED` selects
//! different inputs. Inputs that failed once are in `tests/fuzz` and are tried first.

mod common;
mod fuzz {
    pub(crate) mod folder;
    pub(crate) mod mutate;
    pub(crate) mod seeds;
    pub(crate) mod session;
}

use dali::formats::{self, Request};
use dali::prep::{self, PrepOptions};
use dali::store::{FileInfo, Header};
use dali::{Store, decode};
use engine::checkpoint::{self, Meta};
use engine::config::Config;
use engine::evaluate::DetectionModel;
use engine::runtime::Backend;
use engine::weights::{Extent, WeightsFile};
use score::{Rle, evaluate_files};
use sha2::{Digest, Sha256};

use common::{Place, micro};
use fuzz::folder::Folder;
use fuzz::seeds;
use fuzz::session::fuzz;

/// The text of the error, or an empty string; distinguishes outcomes.
fn outcome<T, E: std::fmt::Display>(result: Result<T, E>) -> String {
    result.err().map_or(String::new(), |error| error.to_string())
}

#[test]
fn broken_jpeg_never_panics() {
    fuzz("jpeg", seeds::jpegs(), |_| (), |bytes| outcome(decoded(bytes)));
}

#[test]
fn broken_png_never_panics() {
    fuzz("png", seeds::pngs(), seeds::fix_png, |bytes| outcome(decoded(bytes)));
}

#[test]
fn broken_bmp_tiff_or_webp_never_panics() {
    fuzz("other_images", seeds::other_images(), |_| (), |bytes| outcome(decoded(bytes)));
}

fn decoded(bytes: &[u8]) -> Result<Vec<u8>, decode::DecodeFault> {
    let info = decode::probe_within(bytes, 1 << 20)?;
    let mut rgb = vec![0; info.height as usize * info.width as usize * 3];
    decode::decode_rgb_into(bytes, &mut rgb)?;
    Ok(rgb)
}

#[test]
fn broken_coco_json_never_panics() {
    let folder = Folder::new();
    folder.write("images/a.jpg", &seeds::jpegs()[0]);
    fuzz(
        "annotations",
        vec![seeds::annotations()],
        |_| (),
        |bytes| {
            folder.write("annotations.json", bytes);
            let out = folder.join("store");
            let mut options =
                PrepOptions::new(folder.join("images"), folder.join("annotations.json"), &out);
            options.skip_bad_images = bytes.len() % 2 == 0;
            let made = prep::run(&options, &mut |_| ());
            if made.is_ok() {
                let store = Store::open(&out).expect("what prep wrote");
                store.verify_all().expect("what prep wrote");
            }
            folder.remove("store");
            outcome(made)
        },
    );
}

/// Reads a folder of one format with one broken file, and stores it if reading succeeds.
fn folders(target: &'static str, format: &str, file: &str) {
    let folder = Folder::new();
    let seeds = seeds::folder(format).into_iter().filter(|(name, _)| *name == file);
    let seeds = seeds.map(|(_, bytes)| bytes).collect();
    for (name, bytes) in seeds::folder(format) {
        folder.write(&format!("set/{name}"), &bytes);
    }
    let fix: fn(&mut [u8]) =
        if file.ends_with(".png") { seeds::fix_png } else { |_: &mut [u8]| () };
    let stored = || {
        let mut request = Request::new(folder.join("set"));
        request.format = Some(format.to_string());
        request.max_image_pixels = 1 << 20;
        let made = formats::read(&request).and_then(|source| {
            let mut options =
                PrepOptions::new(source.images, source.annotations, folder.join("store"));
            options.max_image_pixels = 1 << 20;
            match source.dataset {
                Some(dataset) => prep::run_dataset(&options, dataset, &mut |_| ()),
                None => prep::run(&options, &mut |_| ()),
            }
        });
        folder.remove("store");
        outcome(made)
    };
    assert_eq!(stored(), "", "the seed is sound");
    fuzz(target, seeds, fix, |bytes| {
        folder.write(&format!("set/{file}"), bytes);
        stored()
    });
}

#[test]
fn broken_yolo_yaml_never_panics() {
    folders("yolo_yaml", "yolo", "data.yaml");
}

#[test]
fn broken_yolo_labels_never_panic() {
    folders("yolo_labels", "yolo", "labels/a.txt");
}

#[test]
fn broken_labelme_never_panics() {
    folders("labelme", "labelme", "a.json");
}

#[test]
fn broken_cvat_never_panics() {
    folders("cvat", "cvat", "annotations.xml");
}

#[test]
fn broken_voc_never_panics() {
    folders("voc", "voc", "Annotations/a.xml");
}

#[test]
fn broken_voc_masks_never_panic() {
    folders("voc_masks", "voc", "SegmentationObject/a.png");
}

#[test]
fn broken_mask_images_never_panic() {
    folders("masks", "masks", "masks/a.png");
}

/// A mask file of one object, whose name contains the category.
#[test]
fn broken_object_masks_never_panic() {
    folders("object_masks", "masks", "masks/b/ant_1.png");
}

#[test]
fn broken_class_lists_never_panic() {
    folders("classes", "masks", "classes.json");
}

#[test]
fn broken_coco_folder_never_panics() {
    folders("coco_folder", "coco", "annotations.json");
}

#[test]
fn broken_lvis_never_panics() {
    folders("lvis", "lvis", "lvis_v1_val.json");
}

#[test]
fn broken_detections_never_panic() {
    let folder = Folder::new();
    folder.write("gt.json", &seeds::annotations());
    let (gt, found) = (folder.join("gt.json"), folder.join("found.json"));
    fuzz(
        "detections",
        seeds::detections(),
        |_| (),
        |bytes| {
            folder.write("found.json", bytes);
            outcome(evaluate_files(&gt, &found, None))
        },
    );
}

#[test]
fn broken_ground_truth_never_panics() {
    let folder = Folder::new();
    let (gt, found) = (folder.join("gt.json"), folder.join("found.json"));
    fuzz(
        "ground_truth",
        vec![seeds::annotations()],
        |_| (),
        |bytes| {
            folder.write("gt.json", bytes);
            folder.write("found.json", &seeds::detections()[bytes.len() % 2]);
            outcome(evaluate_files(&gt, &found, None))
        },
    );
}

#[test]
fn broken_rle_never_panics() {
    fuzz(
        "rle",
        seeds::rles(),
        |_| (),
        |bytes| {
            let side = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(9)) * 8;
            let (height, width) = (side(0), side(1));
            let rest = bytes.get(2..).unwrap_or_default();
            let values = rest.as_chunks::<8>().0.iter().map(|value| f64::from_le_bytes(*value));
            let polygon: Vec<f64> = values.collect();
            let drawn = Rle::from_polygons(height, width, &[polygon]);
            let read = Rle::from_leb(height, width, &String::from_utf8_lossy(rest));
            for mask in [&drawn, &read].into_iter().flatten() {
                let ones = mask.decode().iter().filter(|&&pixel| pixel == 1).count();
                assert_eq!(ones as u64, mask.area());
                let _ = (mask.to_bbox(), mask.to_leb());
            }
            outcome(drawn) + &outcome(read)
        },
    );
}

#[test]
fn broken_config_never_panics() {
    fuzz(
        "config",
        seeds::configs(),
        |_| (),
        |bytes| match std::str::from_utf8(bytes) {
            Ok(text) => outcome(Config::from_toml("fuzz", text)),
            Err(_) => "no text".to_string(),
        },
    );
}

/// The files of a store, selected by the first byte.
const STORE_FILES: [&str; 10] = [
    "header.json",
    "images.bin",
    "objects.bin",
    "parts.bin",
    "coords.bin",
    "runs.bin",
    "names.bin",
    "pixels.bin",
    "sources.bin",
    "keypoints.bin",
];

/// Breaks one file of a store, and updates its checksum and the header's seal (SHA-256 of the
/// header), so that later checks are reached. The seal of a broken header is updated only for half
/// of the inputs, selected by the first byte.
#[test]
fn broken_store_never_panics() {
    let folder = Folder::new();
    folder.write("images/a.jpg", &seeds::jpegs()[0]);
    folder.write("annotations.json", &seeds::annotations());
    let paths = (folder.join("images"), folder.join("annotations.json"));
    prep::run(&PrepOptions::new(paths.0, paths.1, folder.join("made")), &mut |_| ())
        .expect("the seed is sound");
    let sound: Vec<Vec<u8>> =
        STORE_FILES.iter().map(|name| folder.read(&format!("made/{name}"))).collect();
    // The header is listed twice: the second time its seal is not updated.
    let files = sound.iter().chain(sound.first());
    let seeds =
        files.enumerate().map(|(i, bytes)| [&[i as u8], bytes.as_slice()].concat()).collect();
    fuzz(
        "store",
        seeds,
        |_| (),
        |bytes| {
            let (first, broken) = bytes.split_first().unwrap_or((&0, &[]));
            let which = usize::from(*first) % STORE_FILES.len();
            for (i, (name, own)) in STORE_FILES.iter().zip(&sound).enumerate() {
                let own = if i == which { broken } else { own };
                folder.write(&format!("broken/{name}"), own);
            }
            let header = if which == 0 { broken } else { &sound[0] };
            let is_even_round = (usize::from(*first) / STORE_FILES.len()).is_multiple_of(2);
            if let Ok(mut header) = serde_json::from_slice::<Header>(header)
                && (which > 0 || is_even_round)
            {
                if which > 0 {
                    let info =
                        FileInfo { bytes: broken.len() as u64, crc32: crc32fast::hash(broken) };
                    header.files.insert(STORE_FILES[which].to_string(), info);
                }
                let sealed = header.sealed().expect("a header is JSON");
                let text = serde_json::to_vec(&sealed).expect("a header is JSON");
                folder.write("broken/header.json", &text);
            }
            outcome(read_all(&folder))
        },
    );
}

fn read_all(folder: &Folder) -> Result<(), dali::DaliError> {
    let store = Store::open(&folder.join("broken"))?;
    for idx in 0..store.len() {
        let _ = store.file_name(idx);
        store.image(idx).objects.for_each(|obj| drop(store.object(obj)));
    }
    // This value determines the size of a slot.
    assert!(store.header().capacities.coords < 1 << 20);
    if store.header().capacities.pixels < 1 << 20 { store.verify_all() } else { Ok(()) }
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Breaks one file of a checkpoint, and updates checksum and seal as for a store.
#[test]
fn broken_checkpoint_never_panics() {
    let place = Place::new();
    place.good(&micro("--set train.steps=1"));
    let names = place.names("runs/micro/checkpoints/step_00000001");
    let file = |name: &String| place.bytes(&format!("runs/micro/checkpoints/step_00000001/{name}"));
    let sound: Vec<Vec<u8>> = names.iter().map(file).collect();
    let small = |bytes: &[u8]| bytes.len() < 1 << 16;
    let seeds = sound
        .iter()
        .enumerate()
        .filter(|(_, bytes)| small(bytes))
        .map(|(i, bytes)| [&[i as u8], bytes.as_slice()].concat())
        .collect();
    let folder = Folder::new();
    fuzz(
        "checkpoint",
        seeds,
        |_| (),
        |bytes| {
            let (first, broken) = bytes.split_first().unwrap_or((&0, &[]));
            let which = usize::from(*first) % names.len();
            for (i, (name, own)) in names.iter().zip(&sound).enumerate() {
                let own = if i == which { broken } else { own };
                // Large files rarely change; writing them each time would dominate the time.
                if i == which || small(own) || !folder.join(&format!("c/{name}")).exists() {
                    folder.write(&format!("c/{name}"), own);
                }
            }
            let meta = names.iter().position(|name| name == "checkpoint.json").expect("a seal");
            let is_even_round = (usize::from(*first) / names.len()).is_multiple_of(2);
            let json = if which == meta { broken } else { &sound[meta] };
            if let Ok(mut json) = serde_json::from_slice::<Meta>(json)
                && (which != meta || is_even_round)
            {
                if which != meta {
                    json.sha256.insert(names[which].clone(), sha256(broken));
                }
                json.seal = None;
                json.seal = Some(sha256(&serde_json::to_vec_pretty(&json).expect("JSON")));
                let text = serde_json::to_vec_pretty(&json).expect("JSON");
                folder.write("c/checkpoint.json", &text);
            }
            let opened = checkpoint::open(&folder.join("c"));
            // Restore the file for the next input.
            folder.write(&format!("c/{}", names[which]), &sound[which]);
            outcome(opened)
        },
    );
}

#[test]
fn broken_weights_never_panic() {
    weights("weights", seeds::weights(), |_| ());
}

/// Python pickles with arrays, in each protocol.
#[test]
fn broken_pickle_never_panics() {
    weights("pickle", seeds::pickles(), |_| ());
}

/// PyTorch archives, with valid checksums, and the older format.
#[test]
fn broken_torch_file_never_panics() {
    weights("torch", seeds::torch_files(), seeds::fix_zip);
}

/// Opens weights files, and loads them into a model.
fn weights(target: &'static str, seeds: Vec<Vec<u8>>, fix: fn(&mut [u8])) {
    let folder = Folder::new();
    let config = Config::load("micro", &[]).expect("a preset");
    let file = folder.join("model");
    fuzz(target, seeds, fix, |bytes| {
        folder.write("model", bytes);
        let opened = WeightsFile::open(&file);
        outcome(opened.and_then(|weights| {
            DetectionModel::new(&config, 4, Some((&weights, Extent::Model)), &Backend::Cpu)
        }))
    });
}
