//! The categories of classes: stored with the weights, reported, and equal to COCO's ids for a head
//! with 91 outputs.

use crate::common::{BAD_CONFIG, Place, as_list, as_number, assert_has, renumber};
use crate::tensors::{self, Tensors};
use safetensors::SafeTensors;
use serde_json::{Value, json};

/// Outputs of torchvision's classifier on COCO, background included.
const OUTPUTS: usize = 91;
/// The ids of the four shapes, with gaps, for which COCO's names are used.
const IDS: [u64; 4] = [1, 27, 80, 90];
const NAMES: [&str; 4] = ["person", "backpack", "toaster", "toothbrush"];

/// A synthetic set whose categories have non-consecutive COCO ids and names, and a run on this set.
fn trained_on_sparse_ids(steps: usize) -> Place {
    let place = Place::new();
    place.shapes(12, "set");
    let mut annotations = place.json("set/annotations.json");
    renumber(&mut annotations, |old| Some(IDS[old as usize - 1]));
    for (item, name) in
        annotations["categories"].as_array_mut().expect("a list").iter_mut().zip(NAMES)
    {
        item["name"] = json!(name);
    }
    place.write("sparse.json", annotations.to_string());
    place.good("prep --images set/images --annotations sparse.json --out store");
    place.write("sparse.toml", SPARSE);
    place.good(&format!("train sparse.toml --set train.steps={steps}"));
    place
}

const SPARSE: &str = r#"
extends = "micro.toml"
[data]
synthetic = "none"
train_store = "store"
val_store = "store"
[model.roi]
canonical_size = 20
[model.box_head]
hidden = [64, 64]
[input]
flip_probability = 0
max_size = 96
[eval]
draw_images = 0
"#;

/// The weights of a run of 400 steps, which detects objects.
const MODEL: &str = "runs/sparse/checkpoints/step_00000400/model.safetensors";

/// The model with 91 outputs: the rows of each class are at its COCO id; all other classes have
/// very low logits.
fn with_91_outputs(mut tensors: Tensors) -> Tensors {
    let predictors = ["box_predictor.cls_score", "box_predictor.bbox_pred", "mask_fcn_logits"];
    for (name, (shape, values)) in &mut tensors {
        let Some(predictor) = predictors.iter().find(|p| name.contains(*p)) else { continue };
        let classes = IDS.len() + 1;
        let row = values.len() / classes;
        let never = if name.ends_with("cls_score.bias") { -1e4 } else { 0.0 };
        let mut wide = vec![never; OUTPUTS * row];
        for class in 0..classes {
            let to = if class == 0 { 0 } else { IDS[class - 1] as usize };
            wide[to * row..(to + 1) * row].copy_from_slice(&values[class * row..(class + 1) * row]);
        }
        shape[0] = if predictor.ends_with("bbox_pred") { 4 * OUTPUTS } else { OUTPUTS };
        *values = wide;
    }
    tensors
}

#[test]
fn head_with_91_outputs_keeps_coco_ids() {
    let place = trained_on_sparse_ids(400);
    tensors::write(
        &place,
        "wide.safetensors",
        &with_91_outputs(tensors::read(&place, MODEL)),
        None,
    );
    let own = place.good("eval --run runs/sparse");
    assert!(
        own.contains("Average Precision") && !own.contains("area=   all | maxDets=100 ] = 0.000")
    );
    let said = place.run("eval --weights wide.safetensors --config sparse.toml");
    assert_eq!((said.code, &said.out), (0, &own), "{}", said.err);
    assert_has(&said.err, &["4 classes: 1 ", "(id 27)", "90 "]);

    // A training step has the same losses, and its checkpoint stores the categories of the classes.
    let loss = |name: &str, more: &str| {
        let set = "--set train.steps=1 --set solver.warmup_steps=0";
        place.good(&format!("train sparse.toml {set} --set train.name={name} {more}"));
        place.steps(&format!("runs/{name}"))[0].clone()
    };
    let narrow = loss("narrow", &format!("--set model.weights={MODEL}"));
    let wide = loss("wide", "--set model.weights=wide.safetensors --set model.num_classes=90");
    for name in ["loss_classifier", "loss_box_reg", "loss_mask"] {
        let [a, b] = [&narrow, &wide].map(|record| as_number(&record[name]));
        assert!((a - b).abs() < 1e-5 * a, "{name}: {a} with 5 outputs, {b} with 91");
    }
    let meta = place.json("runs/wide/checkpoints/step_00000001/checkpoint.json");
    let classes = as_list(&meta["categories"]);
    assert_eq!(classes.len(), 90);
    assert_eq!((&classes[26][1], &classes[79][1]), (&json!(27), &json!(80)));
    assert_eq!(classes[27], json!(["N/A", 28]));
    place.good("eval --run runs/wide");

    // Weights are rejected if a class would get a different category by its position.
    let five = "--set model.num_classes=5";
    place.bad(&format!("eval --run runs/sparse {five}"), 1, &["cls_score"]);
    let mut six = tensors::read(&place, MODEL);
    for (name, (shape, values)) in &mut six {
        if ["box_predictor", "mask_fcn_logits"].iter().any(|p| name.contains(p)) {
            values.extend_from_within(..values.len() / 5);
            shape[0] += shape[0] / 5;
        }
    }
    tensors::write(&place, "six.safetensors", &six, None);
    let eval = "eval --weights six.safetensors --config sparse.toml";
    place.bad(eval, BAD_CONFIG, &["5 classes without names", "store"]);
}

/// A head with 91 outputs and no stored classes is assumed to have COCO's classes: data with
/// different names cannot be evaluated with these weights, and training on it does not load their
/// predictors.
#[test]
fn head_with_91_outputs_is_rejected_for_other_categories() {
    let place = trained_on_sparse_ids(1);
    let model = MODEL.replace("400", "001");
    tensors::write(
        &place,
        "wide.safetensors",
        &with_91_outputs(tensors::read(&place, &model)),
        None,
    );
    let annotations = place.text("sparse.json");
    let prepared = |name: &str, annotations: String| {
        place.write(&format!("{name}.json"), annotations);
        place.good(&format!("prep --images set/images --annotations {name}.json --out {name}"));
        format!("--set data.val_store={name} --set data.train_store={name}")
    };
    let eval = "eval --weights wide.safetensors --config sparse.toml";
    let start = "train sparse.toml --set train.steps=1 --set train.name=next \
                 --set model.num_classes=90 --set model.weights=wide.safetensors";
    let anew =
        ["6 initialised, 0 missing", "the predictors are reinitialised", "does not name its 90"];
    let coco = "class 27 is `backpack` in COCO, but `handbag` (id 27) in";
    let handbag = prepared("handbag", annotations.replace("backpack", "handbag"));
    let mut zero = place.json("sparse.json");
    zero["categories"][0]["id"] = json!(0);
    let zero = zero.to_string().replace("\"category_id\":1,", "\"category_id\":0,");
    let zero = prepared("zero", zero);
    for (data, why) in [(handbag, coco), (zero, "has 4 classes, whose ids are not all between 1")] {
        place.bad(&format!("{eval} {data}"), BAD_CONFIG, &["90 classes without names", why]);
        let said = place.prints(&format!("{start} {data}"), &[]);
        for told in anew.into_iter().chain([why]) {
            assert!(said.err.contains(told), "`{told}` is not in\n{}", said.err);
        }
    }
    let said = place.run(start);
    assert!(
        said.err.contains("0 initialised") && !said.err.contains("reinitialised:"),
        "{}",
        said.err
    );
}

/// Only the weights file determines the classes.
#[test]
fn weights_file_contains_its_classes() {
    let place = trained_on_sparse_ids(400);
    let bytes = place.bytes(MODEL);
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
    let metadata = header.metadata().clone().expect("metadata");
    assert_eq!(metadata["format"], "pt");
    let classes: Value = serde_json::from_str(&metadata["onegraph.categories"]).expect("JSON");
    let ids: Vec<&Value> = as_list(&classes).iter().map(|c| &c["id"]).collect();
    assert_eq!(ids, [1, 27, 80, 90]);

    std::fs::copy(place.join(MODEL), place.join("bare.safetensors")).expect("a copy");
    let predict = "--min-score 0 set/images/000000000001.jpg";
    place.prints(
        &format!("predict --weights bare.safetensors --config sparse.toml --out a {predict}"),
        &["4 classes: 1 ", "(id 27)"],
    );
    place.good(&format!("predict --run runs/sparse --out b {predict}"));
    assert_eq!(place.text("a/predictions.json"), place.text("b/predictions.json"));
    assert!(place.json("a/predictions.json").as_array().is_some_and(|found| !found.is_empty()));
    place.good(&format!("predict --weights {MODEL} --out c {predict}"));
    let alone = format!("predict --weights bare.safetensors --out d {predict}");
    place.bad(&alone, BAD_CONFIG, &["bare.safetensors", "--config"]);
}
