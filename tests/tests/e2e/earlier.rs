//! Runs, stores and configs that the binary of commit 7031707 wrote still load, resume and score to
//! the same bits.
//!
//! `tests/earlier` holds them: `micro` with narrower layers, six steps on a store of six images,
//! for each optimizer, and every preset as `--print-config` printed it, without comments. The
//! digests below come from the same binary, which resumed copies of these runs up to step 9.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{DIVERGED, Place};
use safetensors::SafeTensors;
use sha2::{Digest, Sha256};

/// Digests of `state.safetensors` after step 9.
const STATES: [(&str, &str); 3] = [
    ("sgd", "5502445848760f800b0672eab8226ee3412c6dcbd8c31cb2a035e989af746281"),
    ("novograd", "86a51611f92a835958b7f477523780c721c0993614e4d246a0f7c98ebf55d2f1"),
    ("lars", "0a583e132309f10e120b0c69ff5cefe33bcde58e12dda4b4f329902959ea893a"),
];
/// Digests of the files that the evaluation of step 9 of `sgd` wrote.
const DETECTIONS: [(&str, &str); 2] = [
    ("bbox.json", "22f69bb8b8d38e95e529332bc050a7e7baba42aa4edfd0ad2f5d9727143098dc"),
    ("segm.json", "9d6fa7f10520d07e5795688e6a534c7b933ad600353c1f35b4220a09fbfe41c7"),
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

/// SHA-256 over the tensors in order of name: each its name, then its bytes.
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

#[test]
fn earlier_runs_resume_to_the_same_bits() {
    let place = Place::new();
    copy(&earlier(), place.path());
    for (run, state) in STATES {
        let writer = |run: &str| place.good(&format!("inspect runs/{run}"));
        assert!(
            writer(run).contains("6 steps, 4 classes\nwritten by an older onegraph in format 2")
        );
        place.good(&format!("train --resume runs/{run} --device cpu --set train.steps=9"));
        assert_eq!(digest(&place.state(&format!("runs/{run}"), 9)), state, "{run}");
        let ours = concat!("written by onegraph ", env!("CARGO_PKG_VERSION"), " in format 3\n");
        assert!(writer(run).contains(ours), "{}", writer(run));
    }
    for (file, expected) in DETECTIONS {
        let found = place.bytes(&format!("runs/sgd/inference/{file}"));
        assert_eq!(hex::encode(Sha256::digest(found)), expected, "{file}");
    }
    // The scores of steps 3 and 6, which the earlier binary recorded, are still in the log.
    let scored = |record: &serde_json::Value| record.get("bbox").map(|_| record["step"].as_u64());
    let steps: Vec<_> = place.metrics("runs/sgd").iter().filter_map(scored).collect();
    assert_eq!(steps, [Some(3), Some(6), Some(9)]);
}

/// The pictures of a run that 7031707 wrote were on its page only.
#[test]
fn an_earlier_report_goes_on() {
    let place = Place::new();
    copy(&earlier(), place.path());
    let [before, page] = ["report.json", "report.html"].map(|name| format!("runs/sgd/{name}"));
    let (before, page) = (place.json(&before), place.text(&page));
    place.good("train --resume runs/sgd --set train.steps=12 --set eval.draw_images=1");
    let report = place.json("runs/sgd/report.json");
    assert_eq!((&report["started"], &report["evaluated_step"]), (&before["started"], &12.into()));
    assert_eq!(report["commands"][0], before["commands"][0]);
    assert_eq!(place.text("runs/sgd/report_older.html"), page);
    let pictures = ["step_00000012_01_annotated.jpg", "step_00000012_01_detected.jpg"];
    assert_eq!(place.names("runs/sgd/pictures"), pictures, "those of step 9 are gone");
}

/// No evaluation comes before the losses become non-finite.
#[test]
fn the_page_shows_the_last_evaluation_of_an_earlier_report() {
    let place = Place::new();
    copy(&earlier(), place.path());
    let before = place.json("runs/sgd/report.json");
    let wild = "--set solver.learning_rate=1e6 --set solver.clip_norm=0 --set train.steps=900 \
                --set solver.warmup_steps=0 --set train.eval_every_steps=0 --override";
    place.bad(&format!("train --resume runs/sgd {wild}"), DIVERGED, &["learning_rate"]);
    let report = place.json("runs/sgd/report.json");
    for key in ["evaluated_step", "bbox", "segm", "analysis", "best", "started"] {
        assert_eq!(report[key], before[key], "{key}");
    }
    let page = place.text("runs/sgd/report.html");
    let parts = ["the losses became non-finite", "Boxes (bbox), after step 6</h2>", "<polyline"];
    for part in parts.into_iter().chain(["Masks (segm), after step 6</h2>", "triangle"]) {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn an_earlier_run_is_evaluated_and_detects() {
    let place = Place::new();
    copy(&earlier(), place.path());
    let scores = place.good("eval --run runs/sgd --device cpu");
    assert!(scores.contains("triangle       2 "), "{scores}");
    let exported = "export --run runs/novograd --format torchvision --names-only --out model.pth";
    place.good(exported);
    place.good("inspect train.store --verify");
}

/// Values by key of a config as `--print-config` writes it.
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
fn earlier_configs_mean_what_they_meant() {
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
