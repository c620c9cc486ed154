//! The fused step of R50-FPN at full size: which nodes fusion removes and which remain.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Gpu, Target};
use engine::config::{Config, Fused};
use engine::model::{ImageSize, ModelSpec, Part, SlotShape, training_program};
use engine::runtime::imagined_addresses;
use graph::exec::device::{Place, Prepared};

/// The training step with 12 images of 800x1088, without the fusions in `off`.
fn step(off: &[Fused]) -> Prepared {
    let mut config = Config::load("torchvision_r50", &["train.batch_size=12".to_string()])
        .expect("the preset loads");
    config.fusion.off = off.to_vec();
    let padded = ImageSize { height: 800, width: 1088 };
    let slot = SlotShape::imagined(padded.height, padded.width, 100);
    let target = Target::Gpu(Gpu::h100());
    let spec = ModelSpec {
        config: &config,
        num_classes: 80,
        images: 12,
        padded,
        slot,
        target: target.clone(),
        part: Part::whole(),
        observe: false,
    };
    let program = training_program(&spec).expect("a program").program;
    Prepared::new(Arc::new(program), target).expect("a schedule")
}

/// Number of kernels that a step launches, by name.
fn kernels(step: &Prepared) -> BTreeMap<&'static str, usize> {
    let state = imagined_addresses(step);
    let place = Place { arena: 1 << 44, inputs: 1 << 43, state: &state };
    let list = step.launches(&place).expect("all state has addresses");
    let mut kernels = BTreeMap::new();
    for launch in list.works().iter().flat_map(|work| work.kernels()) {
        *kernels.entry(launch.kernel).or_insert(0) += 1;
    }
    kernels
}

/// In the backward pass, no node over backbone and FPN maps only adds or masks, except for one sum:
/// the gradient of the coarsest output plus the gradient of its subsampled map, 6 MB.
#[test]
fn fusion_leaves_one_elementwise_sum_in_backbone_and_fpn() {
    let (plain, fused) = (step(&Fused::all()), step(&[]));
    let count = |step: &Prepared, op: &str, part: &str| {
        let nodes = step.program.nodes().iter();
        nodes.filter(|node| node.op.name() == op && node.part.starts_with(part)).count()
    };
    for (op, part, before, after) in [
        ("relu_mask", "", 46, 0),
        ("upsample_add", "", 3, 0),
        ("relu_mask", "backbone", 39, 0),
        ("sum", "backbone", 12, 0),
        ("sum", "fpn.inner", 3, 0),
        ("sum", "fpn.output", 4, 1),
        ("sum", "", 21, 1),
        ("scale_weights", "backbone", 0, 1),
        ("bias_grad", "", 20, 19),
        ("conv2d", "rpn.head", 15, 0),
        ("rpn_head", "rpn.head", 0, 1),
        ("conv2d", "backbone", 53, 44),
        ("projected", "backbone", 0, 4),
    ] {
        let counts = [&plain, &fused].map(|step| count(step, op, part));
        assert_eq!(counts, [before, after], "{op} of {part}");
    }
    let launches = [&plain, &fused].map(kernels);
    let scaled = launches.each_ref().map(|k| k.get("conv2d_scale_weights_f16").copied());
    assert_eq!(scaled, [Some(40), None]);
    let [before, after] = launches.map(|kernels| kernels.values().sum::<usize>());
    println!("{before} launches, {after} fused");
    assert!(after + 100 <= before && after <= 380, "{before} launches, {after} fused");
}

/// Bytes of the arena before fusions and the third stream were added.
const BEFORE: usize = 5_960_000_000;

/// Fusions need little memory: the scaled weights are live at the step's peak, and sign bits take a
/// sixteenth of the activations' bytes. With all fusions more work leaves the main stream, and its
/// inputs stay alive longer.
#[test]
fn fusions_use_little_memory() {
    let bytes = |off: &[Fused]| step(off).plan.arena_bytes();
    let plain = bytes(&Fused::all());
    for one in Fused::all() {
        let others: Vec<Fused> = Fused::all().into_iter().filter(|other| *other != one).collect();
        let alone = bytes(&others);
        assert!(alone <= plain + plain / 100, "{one:?}: {alone} bytes, {plain} without");
    }
    let all = bytes(&[]);
    println!("{plain} bytes, {all} fused");
    assert!(all <= plain + plain / 20, "{all} bytes, {plain} without fusions");
    assert!(all < BEFORE, "{all} bytes, {BEFORE} before there were fusions");
}
