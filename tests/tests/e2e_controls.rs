//! Controls of training: parameters that are frozen by name.

mod common;

use common::{BAD_CONFIG, Place, micro};
use safetensors::SafeTensors;

const FROZEN: &str = "--set model.freeze=['backbone.*','rpn.head.*'] --set solver.warmup_steps=2";

/// A tensor's bytes in a file of a checkpoint of `runs/micro`; `None` if the file lacks it.
fn tensor(place: &Place, step: u64, file: &str, name: &str) -> Option<Vec<u8>> {
    let bytes = place.bytes(&format!("runs/micro/checkpoints/step_{step:08}/{file}.safetensors"));
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    tensors.tensor(name).ok().map(|tensor| tensor.data().to_vec())
}

#[test]
fn frozen_parameters_keep_their_bits_and_have_no_state() {
    let place = Place::new();
    let few =
        "--set train.checkpoint_every_steps=1 --set train.keep_checkpoints=9 --set train.steps=4";
    let said = place.run(&micro(&format!("{few} {FROZEN}")));
    assert!(said.err.contains("model.freeze keeps parameters at random weights"), "{}", said.err);
    for (name, is_frozen) in [
        ("backbone.body.layer2.0.conv1.weight", true),
        ("backbone.body.layer2.0.bn1.bias", true),
        ("backbone.fpn.layer_blocks.0.0.weight", true),
        ("rpn.head.bbox_pred.bias", true),
        ("roi_heads.box_predictor.cls_score.weight", false),
    ] {
        let at = |step| tensor(&place, step, "model", name).expect(name);
        assert_eq!(at(1) == at(4), is_frozen, "{name}");
        let momentum = tensor(&place, 4, "state", &format!("momentum/{name}"));
        assert_eq!(momentum.is_none(), is_frozen, "{name}");
    }
    let resume = "train --resume runs/micro --set train.steps=6";
    for set in ["--set model.freeze=[]", "--override --set model.freeze=['backbone.*']"] {
        let words = ["model.freeze: [\"backbone.*\", \"rpn.head.*\"] -> [", "model.weights"];
        place.bad(&format!("{resume} {set}"), BAD_CONFIG, &words);
    }
    place.good(resume);
    place.good(&micro(&format!("--set train.steps=6 {FROZEN} --set train.name=whole")));
    assert!(place.state("runs/micro", 6) == place.state("runs/whole", 6), "resumed to other bits");
    let wrong = micro("--set model.freeze=['bacbone.*']");
    place.bad(&wrong, BAD_CONFIG, &["`model.freeze[0]` is \"bacbone.*\"", "backbone.*"]);
}
