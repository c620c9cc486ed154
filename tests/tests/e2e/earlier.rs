//! Runs, stores, results and configs written by the binaries of two earlier commits still load,
//! resume and give bit-identical scores.
//!
//! The files are in `tests/earlier`. Commit 7031707 wrote runs of six steps of `micro` with
//! narrower layers on a store of six images, one for each optimizer, and every preset as printed by
//! `--print-config`, without comments. A separate folder contains the files of commit 80c2d0ae:
//! two runs of four steps with `train.tuning` on a store with masks and keypoints (one with masks,
//! AdamW and averaged weights, one with keypoints), and the output of `predict`. The digests below
//! were computed by resuming copies of these runs with the same binaries.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::Place;
use safetensors::SafeTensors;
use sha2::{Digest, Sha256};

/// A run, and digests of its files after resuming.
struct Earlier {
    folder: &'static str,
    run: &'static str,
    /// The digest of `state.safetensors`.
    state: &'static str,
    /// The digests of the files of the last evaluation.
    detections: &'static [(&'static str, &'static str)],
}

const RUNS: [Earlier; 5] = [
    Earlier {
        folder: "",
        run: "sgd",
        state: "5502445848760f800b0672eab8226ee3412c6dcbd8c31cb2a035e989af746281",
        detections: &[
            ("bbox.json", "22f69bb8b8d38e95e529332bc050a7e7baba42aa4edfd0ad2f5d9727143098dc"),
            ("segm.json", "9d6fa7f10520d07e5795688e6a534c7b933ad600353c1f35b4220a09fbfe41c7"),
        ],
    },
    Earlier {
        folder: "",
        run: "novograd",
        state: "86a51611f92a835958b7f477523780c721c0993614e4d246a0f7c98ebf55d2f1",
        detections: &[],
    },
    Earlier {
        folder: "",
        run: "lars",
        state: "0a583e132309f10e120b0c69ff5cefe33bcde58e12dda4b4f329902959ea893a",
        detections: &[],
    },
    Earlier {
        folder: "80c2d0ae",
        run: "masks",
        state: "12b7a371e322f216a74b1ffbc7c85ac657cde7b1d08727e8362c1ccda6a509fe",
        detections: &[
            ("bbox.json", "dcac9fc0a306529a4ef9ca7c200d6643288dc4fd8b96ac59be977e96fc9c4ec6"),
            ("segm.json", "2fcc0260b827e8e4239478bd4a79dcfb9e13250741ee4cb39715d0bcbf1c060d"),
        ],
    },
    Earlier {
        folder: "80c2d0ae",
        run: "keypoints",
        state: "0af1ecf02e5bba4d632b9a78aaf506afb558923165a863378d5991d48574698d",
        detections: &[
            ("bbox.json", "82c34176dad52034bd706151a4f3239df844040b5aea151256756b7283f8be87"),
            ("keypoints.json", "ae4ca17b0ce7221751ab5f623578dd883d57ac0f1fabbbd585ed4d55f1a43517"),
        ],
    },
];

fn earlier() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("earlier")
}

/// Copies a folder into `to`.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("a copy")),
        }
    }
}

/// SHA-256 over the names and bytes of all tensors, sorted by name.
fn digest(file: &[u8]) -> String {
    let tensors = SafeTensors::deserialize(file).expect("safetensors");
    let mut names = tensors.names();
    names.sort();
    let mut sha = Sha256::new();
    for name in names {
        sha.update(name);
        sha.update(tensors.tensor(name).expect("its name is listed").data());
    }
    hex::encode(sha.finalize())
}

/// A place with a copy of the files that a commit wrote.
fn copied(folder: &str) -> Place {
    let place = Place::new();
    copy(&earlier().join(folder), place.path());
    place
}

#[test]
fn runs_of_earlier_versions_resume_bit_identically() {
    for Earlier { folder, run, state, detections } in RUNS {
        let (writer, made, until) = match folder {
            "" => ("an older onegraph in format 2", 6, 9),
            _ => ("onegraph 0.3.0 in format 3", 4, 6),
        };
        let place = copied(folder);
        let inspected = || place.good(&format!("inspect runs/{run}"));
        let before = format!("{made} steps, 4 classes\nwritten by {writer}");
        assert!(inspected().contains(&before), "{}", inspected());
        let resume = format!("train --resume runs/{run} --device cpu --set train.steps={until}");
        let said = place.prints(&resume, &[]);
        let warned = said.err.matches("train.tuning").count();
        assert_eq!(warned, usize::from(folder == "80c2d0ae"), "{}", said.err);
        assert_eq!(digest(&place.state(&format!("runs/{run}"), until)), state, "{run}");
        let ours = concat!("written by onegraph ", env!("CARGO_PKG_VERSION"), " in format 3\n");
        assert!(inspected().contains(ours), "{}", inspected());
        for (file, expected) in detections {
            let found = place.bytes(&format!("runs/{run}/inference/{file}"));
            assert_eq!(hex::encode(Sha256::digest(found)), *expected, "{run}: {file}");
        }
        if !detections.is_empty() {
            // The scores recorded by the earlier binary are still in the log.
            let records = place.metrics(&format!("runs/{run}"));
            let scored = records.iter().filter(|record| record.get("bbox").is_some());
            let steps: Vec<_> = scored.map(|record| record["step"].as_u64()).collect();
            assert_eq!(steps, [Some(made / 2), Some(made), Some(until)], "{run}");
        }
    }
}

/// Commit 7031707 stored a run's pictures only in its page.
#[test]
fn earlier_report_is_continued() {
    let place = copied("");
    let [before, page] = ["report.json", "report.html"].map(|name| format!("runs/sgd/{name}"));
    let (before, page) = (place.json(&before), place.text(&page));
    place.good("train --resume runs/sgd --set train.steps=12 --set eval.draw_images=1");
    let report = place.report("sgd");
    assert_eq!((&report["started"], &report["evaluated_step"]), (&before["started"], &12.into()));
    assert_eq!(report["commands"][0], before["commands"][0]);
    assert_eq!(place.text("runs/sgd/report_older.html"), page);
    let pictures = ["step_00000012_01_annotated.jpg", "step_00000012_01_detected.jpg"];
    assert_eq!(place.names("runs/sgd/pictures"), pictures, "those of step 9 are gone");
}

#[test]
fn earlier_run_is_evaluated_and_exported() {
    let place = copied("");
    let scores = place.good("eval --run runs/sgd --device cpu");
    assert!(scores.contains("triangle       2 "), "{scores}");
    let exported = "export --run runs/novograd --format torchvision --names-only --out model.pth";
    place.good(exported);
    place.good("inspect train.store --verify");
}

/// Compares with the results that 80c2d0ae wrote for the same files.
#[test]
fn earlier_results_are_scored_and_compared() {
    let place = copied("80c2d0ae");
    place.good("inspect shapes.store --verify");
    for (run, kinds) in [("masks", ["bbox", "segm"]), ("keypoints", ["bbox", "keypoints"])] {
        place.good(&format!("eval --run runs/{run} --device cpu --out scored"));
        for kind in kinds {
            let written = format!("runs/{run}/inference/{kind}.json");
            assert_eq!(place.text(&format!("scored/{kind}.json")), place.text(&written), "{run}");
            place.good(&format!("eval --gt set/annotations.json --detections {written}"));
        }
        let image = "set/images/000000000001.jpg";
        place.good(&format!("predict --run runs/{run} --device cpu --out p --min-score 0 {image}"));
        let written = place.text(&format!("predicted/{run}.json"));
        assert_eq!(place.text("p/predictions.json"), written, "{run}");
        copy(&place.join(&format!("runs/{run}")), &place.join("runs/again"));
        place.good("train --resume runs/again --device cpu --set train.steps=6");
        place
            .shows(&format!("compare runs/{run} runs/again --samples 2"), &["train.steps: 4 -> 6"]);
        fs::remove_dir_all(place.join("runs/again")).expect("it is there");
    }
}

/// Values by key of a config as printed by `--print-config`.
fn values(text: &str) -> BTreeMap<String, String> {
    let mut table = String::new();
    let mut values = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            table = name.to_owned();
        } else if let Some((key, value)) = line.split_once(" = ") {
            values.insert(format!("{table}.{key}"), value.to_owned());
        }
    }
    values
}

#[test]
fn earlier_configs_load_unchanged() {
    let place = Place::new();
    let mut count = 0;
    for entry in fs::read_dir(earlier().join("presets")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let preset = path.file_stem().expect("a name").to_string_lossy();
        let written = values(&fs::read_to_string(&path).expect("a file"));
        assert!(written.len() > 100, "{preset}: {} values", written.len());
        for config in [path.to_str().expect("UTF-8"), &preset] {
            let now = values(&place.good(&format!("train {config} --print-config")));
            for (key, value) in &written {
                assert_eq!(now.get(key), Some(value), "{config}: {key}");
            }
        }
        count += 1;
    }
    assert_eq!(count, 17);
}
