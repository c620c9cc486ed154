//! ONNX files of narrow golden models: `tests/interchange/onnx_agreement.py` compares onnxruntime's
//! detections on real images with those of `onegraph`.

use std::path::{Path, PathBuf};
use std::process::Command;

use engine::weights::{Dialect, ExportForm, export_weights};

use crate::model_configs::Recorded;
use crate::models::Model;
use crate::support::{data_dir, skipped};

/// The Python interpreter for which `.ci/run` has installed onnxruntime.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/onnx/bin/python");
    let found = python.is_file().then_some(python);
    if found.is_none() {
        skipped("onnxruntime is not installed in target/onnx (see CONTRIBUTING.md)");
    }
    found
}

/// Compares the detections of a model's ONNX file with those of the model itself.
pub(crate) fn agrees(of: &'static Recorded) {
    let Some(recorded) = Model::open(of) else { return };
    let model = recorded.detection();
    let images = data_dir().join("coco-open/val2017");
    if !images.is_dir() {
        return skipped(&format!("{} is missing", images.display()));
    }
    let Some(python) = python() else { return };
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join(of.name);
    std::fs::create_dir(&folder).expect("a folder");
    let text = recorded.config.to_toml().expect("a config");
    std::fs::write(folder.join("config.toml"), text).expect("a file");
    let (form, dialect) = (ExportForm::Safetensors, Dialect::Torchvision);
    let bytes = export_weights(&model.params, &model.state, None, form, dialect).expect("weights");
    std::fs::write(folder.join("weights.safetensors"), bytes).expect("a file");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(python)
        .arg(root.join("tests/interchange/onnx_agreement.py"))
        .arg(env!("CARGO_BIN_EXE_onegraph-under-test"))
        .args([&images, &folder])
        .output()
        .expect("Python starts");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let text = said(&output.stdout) + &said(&output.stderr);
    assert!(output.status.success(), "{text}");
    println!("{text}");
}
