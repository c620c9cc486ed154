//! Weights of losses in the program: nodes only for those that are not 1.

use configs::Config;
use device::{Gpu, Target};

use super::*;
use crate::model::{ImageSize, Part, SlotShape};

/// Nodes of the training step of `micro`, by the name of their op.
fn nodes(set: &[&str], target: Target) -> Vec<&'static str> {
    let set: Vec<String> = set.iter().map(ToString::to_string).collect();
    let config = Config::load("micro", &set).expect("the preset loads");
    let spec = ModelSpec {
        config: &config,
        num_classes: 4,
        images: 2,
        padded: ImageSize { height: 64, width: 64 },
        slot: SlotShape { pixels: 3 * 64 * 64, objects: 9, parts: 9, coords: 200, runs: 50 },
        target,
        part: Part::whole(),
        observe: false,
    };
    let built = training_program(&spec).expect("micro is sound");
    built.program.nodes().iter().map(|node| node.op.name()).collect()
}

#[test]
fn a_weight_of_1_adds_no_node() {
    for target in [Target::Cpu, Target::Gpu(Gpu::a100())] {
        let count = |set: &[&str], op: &str| {
            nodes(set, target.clone()).into_iter().filter(|name| *name == op).count()
        };
        let plain = nodes(&[], target.clone());
        assert_eq!(nodes(&["loss_weights.mask=1"], target.clone()), plain);
        assert_eq!(count(&[], "scalar_product"), 0);
        let two = ["loss_weights.mask=2", "loss_weights.box_reg=0.5"];
        assert_eq!(count(&two, "scalar_product"), 2);
        assert_eq!(nodes(&two, target.clone()).len(), plain.len() + 4, "a weight and a product");
    }
}
