//! `d2_c2_names.json`: the parameter that each blob of Caffe2's ResNet-50 is, by detectron2's own
//! converter; `d2_state_dict_names.json`: the tensors of its models.

use std::collections::BTreeMap;

use configs::Config;
use engine::model::{BuiltProgram, ImageSize, ModelSpec, SlotShape, training_program};
use engine::weights::{Dialect, ExportForm, Values, WeightsFile, export_weights, initial_state};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::Value;

use crate::model_setup::usizes;
use crate::support::{golden_dir, need};

/// Each blob is loaded under the same name as the parameter that detectron2's converter maps it to.
pub(crate) fn run() {
    let Some(path) = need(golden_dir().join("d2_c2_names.json")) else { return };
    let text = std::fs::read(path).expect("a file");
    let tables: Value = serde_json::from_slice(&text).expect("JSON");
    let unused = tables["imagenet_unused_in_mask_rcnn_R_50_FPN_3x"].as_array().expect("a list");
    for (table, count) in
        [("r50_bn_gamma_beta_running", 265), ("r50_bn_s_b_rm_riv", 265), ("r50_bn_s_b", 159)]
    {
        let names = tables[table].as_object().expect("an object").iter();
        let names = names.filter(|(blob, _)| !unused.contains(&Value::from(blob.as_str())));
        let (blobs, theirs): (Vec<&str>, Vec<&str>) =
            names.map(|(blob, name)| (blob.as_str(), name.as_str().expect("a name"))).unzip();
        assert_eq!(blobs.len(), count, "{table}");
        let (ours, theirs) = (read(&blobs, Dialect::Detectron), read(&theirs, Dialect::Detectron2));
        assert_eq!(theirs.len(), count, "{table}");
        for (name, value) in &theirs {
            assert_eq!(ours.get(name), Some(value), "{table}: {name}");
        }
    }
}

/// A file of these names, whose i-th tensor is the number i, under our names.
fn read(names: &[&str], dialect: Dialect) -> BTreeMap<String, Values> {
    let numbers: Vec<[u8; 4]> =
        (1u16..).map(|i| f32::from(i).to_le_bytes()).take(names.len()).collect();
    let view = |number| TensorView::new(Dtype::F32, vec![1], number).expect("four bytes");
    let views = names.iter().zip(&numbers).map(|(name, number)| (*name, view(&number[..])));
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), safetensors::serialize(views, None).expect("sound"))
        .expect("a file");
    let read = WeightsFile::open(file.path()).expect("sound");
    assert_eq!(read.dialect(), dialect);
    read.tensors(1e-5)
}

/// `d2_state_dict_names.json`: every tensor of detectron2's FPN models has the name and the shape
/// that a model of the preset exports, and as many are trained here.
pub(crate) fn state_dicts() {
    let Some(path) = need(golden_dir().join("d2_state_dict_names.json")) else { return };
    let text = std::fs::read(path).expect("a file");
    let tables: Value = serde_json::from_slice(&text).expect("JSON");
    for (table, preset) in [
        ("mask_rcnn_R_50_FPN_3x", "detectron2_r50_3x"),
        ("faster_rcnn_R_50_FPN_3x", "detectron2_faster_r50_3x"),
    ] {
        let of_model = tables[table]["state_dict"].as_object().expect("an object");
        let config = Config::load(preset, &[]).expect("the preset loads");
        let slot = SlotShape { pixels: 1, objects: 1, parts: 1, coords: 1, runs: 1 };
        let spec = ModelSpec {
            config: &config,
            num_classes: 80,
            images: 1,
            padded: ImageSize { height: 64, width: 64 },
            slot,
            target: device::Target::Cpu,
            part: engine::model::Part::whole(),
            observe: false,
        };
        let BuiltProgram { program, params, .. } = training_program(&spec).expect("it builds");
        let state = initial_state(&program, &params, 0, config.model.backbone.norm_eps);
        let (form, dialect) = (ExportForm::Safetensors, Dialect::Detectron2);
        let bytes = export_weights(&params, &state, None, form, dialect).expect("an export");
        let file = SafeTensors::deserialize(&bytes).expect("sound");
        let ours: BTreeMap<String, Vec<usize>> =
            file.iter().map(|(name, view)| (name.into(), view.shape().to_vec())).collect();
        let theirs: BTreeMap<String, Vec<usize>> =
            of_model.iter().map(|(name, shape)| (name.clone(), usizes(shape))).collect();
        assert_eq!(ours, theirs, "{table}");
        let trained = params.iter().filter(|param| param.trained.is_some()).count();
        assert_eq!(trained, tables[table]["trained"].as_array().expect("a list").len(), "{table}");
    }
}
