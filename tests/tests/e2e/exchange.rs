//! Models exported for other projects and loaded back, and runs that start from their files.

use crate::common::{BAD_CONFIG, FAILED, Place, as_list, assert_has, micro};
use crate::tensors::{self, Tensors};

const CHECKPOINT: &str = "runs/micro/checkpoints/step_00000002";

/// A folder with a run of two steps.
fn trained() -> Place {
    Place::trained("--set train.steps=2")
}

/// The scores that the command prints for a weights file.
fn scores(place: &Place, weights: &str) -> String {
    place.shows(
        &format!("eval --weights {weights} --config {CHECKPOINT}/config.toml"),
        &["Average Precision"],
    )
}

#[test]
fn exported_model_has_scores_of_its_run() {
    let place = trained();
    let whole = place.good("eval --run runs/micro");
    let export = "export --run runs/micro --names-only --format";
    for (format, file) in [
        ("torchvision", "a.pth"),
        ("torchvision", "a.safetensors"),
        ("detectron2", "b.pth"),
        ("detectron2", "b.safetensors"),
    ] {
        place.shows(
            &format!("{export} {format} --out {file}"),
            &[&format!("under the names of {format}")],
        );
        let accept = if format == "detectron2" { " --names-only" } else { "" };
        assert_eq!(scores(&place, &format!("{file}{accept}")), whole, "{file}");
    }
    let checkpoint = format!("{CHECKPOINT}/model.safetensors");
    let is_same = place.bytes("a.safetensors") == place.bytes(&checkpoint);
    assert!(is_same, "torchvision's names are the checkpoint's");

    let ap: Vec<f64> = whole
        .lines()
        .filter(|line| line.contains("(AP) @[ IoU=0.50:0.95 | area=   all"))
        .map(|line| line.rsplit('=').next().expect("a number").trim().parse().expect("a number"))
        .collect();
    assert_eq!(ap.len(), 2, "{whole}");
    let expect = |bbox: f64, mask: f64| {
        format!("eval --run runs/micro --expect box={:.4},mask={:.4}", bbox.abs(), mask.abs())
    };
    let out = place.good(&expect(ap[0], ap[1] + 0.001));
    assert!(out.starts_with(&whole) && out.matches(": as expected").count() == 2, "{out}");
    assert_has(&out, &["within 0.002"]);
    let told = ["not as expected: segm AP is", &format!("expected {:.4}", ap[1] + 0.1)];
    place.bad(&expect(ap[0], ap[1] + 0.1), FAILED, &told);
    let boxes = "--set model.kind=faster_rcnn";
    place.bad(&format!("eval --run runs/micro {boxes} --expect mask=0.3"), BAD_CONFIG, &[]);
    assert_eq!(place.run("eval --run runs/micro --expect mask=3").code, 2);
}

#[test]
fn export_rejects_model_the_format_cannot_express() {
    let place = trained();
    let told = ["the small backbone", "group norms", "no level above", "--names-only"];
    let export = "export --run runs/micro --format torchvision --out a";
    place.refuses(
        BAD_CONFIG,
        &[
            (&format!("{export}.pth"), &told),
            (&format!("{export}.onnx"), &["a.onnx", ".safetensors or .pth"]),
        ],
    );
    assert!(!place.join("a.pth").exists() && !place.join("a.onnx").exists());
    place.good("export --run runs/micro --names-only --format detectron2 --out b.pth");
    let eval = format!("eval --weights b.pth --config {CHECKPOINT}/config.toml");
    let told = ["b.pth", "detectron2's names", "anchors rounded", "--names-only"];
    place.bad(&eval, BAD_CONFIG, &told);
}

#[test]
fn onnx_export_writes_model_and_rejects_invalid_options() {
    let place = trained();
    let export = "export --run runs/micro --format onnx --out m.onnx";
    assert!(place.good(export).contains("m.onnx: opset 17, images [N, 3, 64, 64]"));
    assert!(place.good(&format!("{export} --shape 48x64")).contains("[N, 3, 48, 64]"));
    let (whole, metadata) = (place.bytes("m.onnx"), br#""classes":[{"id":1,"name":"square"}"#);
    assert!(whole.windows(metadata.len()).any(|part| part == metadata));
    let odd = format!("{export} --shape 50x64");
    place.bad(&odd, BAD_CONFIG, &["50x64", "multiples of 16"]);
    let large = place.run(&format!("{export} --shape 65536x64"));
    assert!(large.code == 2 && large.err.contains("at most 8192 pixels"), "{}", large.err);
    place.shows(
        &format!("{export} --shape 32x64"),
        &["not all images fit: the model resizes images to up to 64 by 64 pixels"],
    );
    place.bad("export --run runs/micro --format onnx --out m.toml", BAD_CONFIG, &["in .onnx"]);
    let weights = "export --run runs/micro --format torchvision --names-only --out a.pth";
    place.bad(&format!("{weights} --shape 64x64"), BAD_CONFIG, &["--shape", "onnx"]);
    let name = "--set train.name=boxes --set train.steps=1 --set model.kind=faster_rcnn";
    place.good(&micro(name));
    place.good("export --run runs/boxes --format onnx --out b.onnx");
    let has_masks = |file: &str| place.bytes(file).windows(5).any(|part| part == b"masks");
    assert!(has_masks("m.onnx") && !has_masks("b.onnx"));
}

/// The tensors of the checkpoint.
fn model(place: &Place) -> Tensors {
    tensors::read(place, &format!("{CHECKPOINT}/model.safetensors"))
}

fn begun(place: &Place, init: &str, words: &[&str]) {
    let next = format!("--set train.steps=1 --set train.name=next {init}");
    place.prints(&micro(&next), words);
}

#[test]
fn run_starts_from_full_or_backbone_file() {
    let place = trained();
    place.good("export --run runs/micro --names-only --format detectron2 --out whole.pth");
    let all = "0 initialised, 0 missing, 0 mismatched; 0 tensors unexpected";
    let told = [
        "whole.pth has detectron2's names",
        "but detectron2's as (BGR - [103.53, 116.28, 123.675]) / [1.0, 1.0, 1.0]",
        "--names-only",
    ];
    place.refuses(
        BAD_CONFIG,
        &[(&micro("--init whole.pth"), &told), (&micro("--init whole.pth --finetune"), &told)],
    );
    begun(
        &place,
        "--init whole.pth --names-only",
        &["warning: tensors were matched only by name", "whole.pth: ", all],
    );
    tensors::write(&place, "body.safetensors", &tensors::body(&model(&place)), None);
    begun(
        &place,
        "--init body.safetensors",
        &[
            "body.safetensors (only the backbone): ",
            "0 missing, 0 mismatched; 0 tensors unexpected",
        ],
    );
    let none = "train micro --init body.safetensors --finetune";
    place.refuses(
        BAD_CONFIG,
        &[
            (none, &["body.safetensors", "only a backbone"]),
            ("train micro --finetune", &["give --init FILE"]),
        ],
    );
    place.bad(&micro("--init nothing.pth"), FAILED, &["nothing.pth"]);
}

#[test]
fn predictor_rows_are_kept_by_class_only_if_requested() {
    let place = trained();
    let meta = place.json(&format!("{CHECKPOINT}/checkpoint.json"));
    let categories = as_list(&meta["categories"]);
    let names: Vec<&str> = categories.iter().filter_map(|c| c[0].as_str()).collect();
    let classes: Vec<_> = [names[1], "zebra", &names[0].to_uppercase(), names[3]]
        .iter()
        .zip(1..)
        .map(|(name, id)| serde_json::json!({"id": id, "name": name}))
        .collect();
    let classes = serde_json::Value::from(classes).to_string();
    tensors::write(&place, "other.safetensors", &model(&place), Some(&classes));
    let taken = format!(
        "3 of 4 classes, matched by name, get their weights from the file: {} (class 3), {} (class \
         1), {} (class 4)",
        names[0], names[1], names[3]
    );
    let anew = format!("1 reinitialised: {}", names[2]);
    let finetune = "--init other.safetensors --finetune";
    begun(&place, finetune, &[&taken, &anew, "0 initialised"]);
    begun(
        &place,
        "--init other.safetensors",
        &["the predictors are reinitialised", "6 initialised"],
    );
    // An equal number of classes does not imply that the classes are equal.
    tensors::write(&place, "nameless.safetensors", &model(&place), None);
    let finetune = "--init nameless.safetensors --finetune";
    let anew = "warning: the predictors are reinitialised: the file does not name its 4 classes";
    begun(&place, finetune, &[anew, "6 initialised"]);
    let order = "the file has no class names: the data's order is assumed, 4 classes: 1 ";
    begun(&place, "--init nameless.safetensors", &[order, " 0 initialised"]);
    let config = format!("--weights nameless.safetensors --config {CHECKPOINT}/config.toml");
    let order = "the weights have no class names; the data's order is assumed: 4 classes: 1 ";
    place.prints(&format!("eval {config}"), &[order]);
    let images = "runs/data/micro/val-8x64-seed0/images";
    let numbered = "the weights file does not name its 4 classes: they are numbered";
    place.prints(&format!("predict {config} --out p {images}"), &[numbered]);
}
