//! Fused variants of a step compared with the unfused one.

use dali::store::Stores;
use engine::config::{Config, Fused};
use kernels::cpu::HostTensor;

use super::program::{Changes, OnDevice, SQUARE, images, inputs, micro};
use super::{Open, folder, norm};

/// A ResNet with frozen batch norm, blocks with and without downsampling, and four pyramid levels.
const RESNET: [&str; 10] = [
    "model.backbone.kind=\"resnet\"",
    "model.backbone.blocks=[1, 2, 1, 1]",
    "model.backbone.stem_channels=8",
    "model.backbone.width=8",
    "model.backbone.norm=\"frozen_batch_norm\"",
    "model.backbone.frozen_stages=2",
    "model.anchors.sizes=[8, 16, 32, 48]",
    "model.roi.canonical_size=20",
    "input.size_divisor=32",
    "model.box_head.hidden=[16, 24]",
];
/// A mask head with enough channels for sign bits.
const MASKS_WITH_SIGNS: [&str; 2] =
    ["model.mask_head.channels=[64, 64]", "model.mask_head.deconv_channels=64"];
const MICRO: [&str; 1] = ["model.roi.canonical_size=20"];

/// Maximum relative distance of a gradient from the unfused one: values are rounded to fp16 at
/// different points. The programs below reach a third of this limit.
const APART: f64 = 5e-3;
/// Maximum distance for fusions that change rounding in the forward pass and therefore features and
/// losses. Measured: 5.9e-3.
const APART_FORWARD: f64 = 2e-2;
/// Maximum distance if the last convolution of a bottleneck computes the projection, which changes
/// signs of activations from the second block on. Measured: 2.8e-2. fp32 gradients differ by up to
/// 3.5e-2 from the unfused fp16 step's, and by 2.7e-2 from this fused step's.
const APART_PROJECTED: f64 = 5e-2;

/// A device after the first step.
fn stepped(store: &Stores, config: &Config, open: &Open, seed: u64) -> OnDevice {
    let device = open(Some(seed));
    let mut device = OnDevice::new(store, config, &[SQUARE], Changes::OBSERVED, device);
    for (name, bytes) in inputs(store, config, &[0, 3]) {
        device.write(0, &name, &bytes);
    }
    device.run(0);
    device
}

/// The outputs of the first step, including losses and gradients, sorted by name.
fn first_step(
    store: &Stores,
    config: &Config,
    open: &Open,
    seed: u64,
) -> Vec<(String, HostTensor)> {
    kept(&stepped(store, config, open, seed))
}

fn kept(device: &OnDevice) -> Vec<(String, HostTensor)> {
    let program = &device.executor.programs()[0].program;
    let mut names: Vec<String> =
        program.kept_names().iter().map(|(name, _)| name.to_string()).collect();
    names.sort_unstable();
    names.into_iter().map(|name| (name.clone(), device.read(0, &name))).collect()
}

/// With each single fusion and with all fusions, losses and gradients equal those of the unfused
/// step up to rounding, and are bit-identical in two execution orders.
pub(super) fn fusions_change_only_rounding(open: &Open) {
    let place = folder();
    let store = images(place.path());
    for set in [&MICRO[..], &RESNET] {
        let mut config = micro(set);
        config.fusion.off = Fused::all().to_vec();
        let plain = first_step(&store, &config, open, 7);
        let alone = Fused::all().map(|one| {
            let off = Fused::all().into_iter().filter(|other| *other != one).collect::<Vec<_>>();
            (format!("{one:?}"), off)
        });
        for (name, off) in alone.into_iter().chain([("all".to_string(), vec![])]) {
            config.fusion.off = off;
            let fused = first_step(&store, &config, open, 7);
            let in_forward = [Fused::UpsampleAdd, Fused::FourChannelStem];
            let most = match &config.fusion {
                fusion if fusion.has(Fused::Projections) => APART_PROJECTED,
                fusion if in_forward.iter().any(|one| fusion.has(*one)) => APART_FORWARD,
                _ => APART,
            };
            let worst = compare(&name, &plain, &fused, most);
            println!("{name:<16} worst distance {worst:?}");
        }
        let again = first_step(&store, &config, open, 11);
        let fused = first_step(&store, &config, open, 7);
        assert!(again == fused, "results depend on the execution order");
    }
}

/// Masking by sign bits is bit-identical to masking by activations: in the backbone, in a mask head
/// with unused RoIs, and in the gradient of a transposed convolution.
pub(super) fn sign_fusion_is_bit_exact(open: &Open) {
    let place = folder();
    let store = images(place.path());
    let mut config = micro(&[&RESNET[..], &MASKS_WITH_SIGNS].concat());
    let signed = stepped(&store, &config, open, 7);
    let nodes = signed.executor.programs()[0].program.nodes();
    let have = |part: &str| {
        let of_part = nodes.iter().filter(|node| node.part.starts_with(part));
        let makes = |op: &str| ["conv2d", "projected"].contains(&op);
        of_part.filter(|node| makes(node.op.name()) && node.outputs.len() == 2).count()
    };
    let [backbone, mask_head] = ["backbone", "mask_head"].map(have);
    assert!(backbone >= 4 && mask_head == 2, "{backbone} and {mask_head} GEMMs have signs");
    config.fusion.off = vec![Fused::ReluSigns];
    assert!(first_step(&store, &config, open, 7) == kept(&signed), "sign bits change results");
}

/// The name of the loss or gradient with the largest distance, which must be at most `most`, and
/// this distance. Both must use the same samples.
fn compare(
    fusion: &str,
    plain: &[(String, HostTensor)],
    fused: &[(String, HostTensor)],
    most: f64,
) -> (f64, String) {
    let mut worst = (0.0, String::new());
    for ((name, want), (same, got)) in plain.iter().zip(fused) {
        assert_eq!(name, same);
        if ["rpn_labels", "rpn_sample_idx", "roi_labels", "num_rois"].contains(&name.as_str()) {
            assert_eq!(got, want, "{fusion}: {name}");
        }
        if !name.starts_with("grad/") && !name.starts_with("loss_") {
            continue;
        }
        let pairs = got.as_f32().iter().zip(want.as_f32());
        let difference: Vec<f32> = pairs.map(|(got, want)| got - want).collect();
        let apart = norm(&difference) / norm(want.as_f32()).max(1e-20);
        assert!(apart < most, "{fusion}: {name} is {apart:.1e} from the plain form");
        if apart > worst.0 {
            worst = (apart, name.clone());
        }
    }
    worst
}
