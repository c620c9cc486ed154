//! Single steps: the values of the first step, and steps with two alternating padded shapes.

use engine::model::ImageSize;
use kernels::cpu::HostTensor;
use kernels::ops::control_step::Control;

use super::program::{
    Changes, OnCpu, OnDevice, SQUARE, empty_slot, images, inputs, inputs_from, micro, new_heads,
};
use super::{Open, folder, norm, relative};

const PROPOSALS: [&str; 3] = ["proposals", "proposal_anchor_idx", "proposal_counts"];

/// In the first step, fp16 and f32 sample the same anchors, and the same RoIs from the same
/// proposals; losses and gradients agree up to the rounding of fp16.
pub fn fp16_step_matches_f32(open: &Open) {
    first_step(open, &["model.roi.canonical_size=20"], IN_FP16);
}

/// The first step in fp32, where only the summation order differs.
pub(super) fn fp32_step_matches_cpu(open: &Open) {
    first_step(open, &["model.roi.canonical_size=20", "train.precision=fp32"], IN_FP32);
}

/// The first step of a ResNet in fp32; its convolutions have strides and are scaled by frozen
/// norms.
pub(super) fn fp32_resnet_step_matches_cpu(open: &Open) {
    let resnet = [
        "model.roi.canonical_size=20",
        "train.precision=fp32",
        "model.backbone.kind=resnet",
        "model.backbone.norm=frozen_batch_norm",
        "model.backbone.blocks=[1, 2, 1, 1]",
        "model.backbone.stem_channels=16",
        "model.backbone.width=8",
        "model.anchors.sizes=[8, 16, 32, 64]",
        "input.size_divisor=32",
    ];
    first_step(open, &resnet, IN_FP32);
}

/// The first step in tf32.
pub(super) fn tf32_step_matches_cpu(open: &Open) {
    first_step(open, &["model.roi.canonical_size=20", "train.precision=tf32"], IN_TF32);
}

/// The first step with `norm` after the convolutions of pyramid and heads, in fp16 and in fp32.
pub(super) fn normed_head_step_matches_f32(open: &Open, norm: &str) {
    let heads = new_heads(norm);
    for (precision, bounds) in [("fp16", IN_FP16), ("fp32", NEW_HEADS_IN_FP32)] {
        let precision = format!("train.precision={precision}");
        let set = heads.iter().map(String::as_str);
        let set = set.chain(["model.roi.canonical_size=20", &precision]).collect::<Vec<_>>();
        first_step(open, &set, bounds);
    }
}

/// The first step of `micro` with `set`, in fp32.
pub(super) fn fp32_step_matches_f32(open: &Open, set: &[&str]) {
    let in_fp32 = ["model.roi.canonical_size=20", "train.precision=fp32"];
    first_step(open, &[set, &in_fp32].concat(), NEW_HEADS_IN_FP32);
}

/// In three steps in fp32 and tf32, losses and resulting weights equal the CPU's, and the loss
/// scale is 1.
pub(super) fn three_fp32_and_tf32_steps_match_cpu(open: &Open) {
    for (precision, loss, weight) in [("fp32", 1e-5, 1e-5), ("tf32", 2e-3, 5e-3)] {
        let place = folder();
        let store = images(place.path());
        let set = format!("train.precision={precision}");
        let config = micro(&["solver.learning_rate=0.01", "model.roi.canonical_size=20", &set]);
        let mut device = OnDevice::new(&store, &config, &[SQUARE], Changes::NONE, open(Some(3)));
        let mut cpu = OnCpu::new(&store, &config, SQUARE, Changes::NONE);
        let mut worst = 0.0f64;
        for step in 0..3 {
            for (name, bytes) in inputs(&store, &config, &[step, step + 1]) {
                device.write(0, &name, &bytes);
                cpu.write(&name, &bytes);
            }
            device.run(0);
            cpu.run();
            for &name in &cpu.losses {
                let both = [device.read(0, name), cpu.read(name)];
                let [got, want] = both.map(|t| f64::from(t.as_f32()[0]));
                worst = worst.max(relative(got, want));
                assert!(relative(got, want) < loss, "step {step} {name}: {got}, CPU {want}");
            }
        }
        let state = device.state.fetch().expect("the state");
        let mut apart = 0.0f64;
        for name in &cpu.trained {
            let [got, want] = [state, &cpu.state].map(|s| s.get(name).expect("a weight").as_f32());
            let difference: Vec<f32> = got.iter().zip(want).map(|(g, w)| g - w).collect();
            // Biases start at 0, so errors are measured relative to the norm of the whole update.
            apart = apart.max(norm(&difference) / norm(want).max(1e-2));
        }
        println!("three steps in {precision}: losses off {worst:.2e}, weights {apart:.2e}");
        assert!(apart < weight, "weights in {precision}: {apart:.2e}");
        assert_eq!(state.get("skipped_steps").expect("a state").as_i32(), [0]);
    }
}

/// Error bounds of a first step: of its losses, the norm of all gradients, the norm of each
/// gradient, and the distance of each gradient.
#[derive(Clone, Copy)]
struct Bounds {
    loss: f64,
    total: f64,
    norm: f64,
    apart: f64,
}

const IN_FP16: Bounds = Bounds { loss: 0.01, total: 0.03, norm: 0.10, apart: 0.25 };
const IN_FP32: Bounds = Bounds { loss: 1e-6, total: 1e-6, norm: 1e-5, apart: 1e-5 };
/// Changing the last bit of the weights changes a gradient by up to 1.0e-5 with the new heads, and
/// by 2.1e-6 without them.
const NEW_HEADS_IN_FP32: Bounds = Bounds { loss: 3e-6, total: 3e-6, norm: 3e-5, apart: 3e-5 };
/// GEMM operands have as many mantissa bits as in fp16, so gradients have similar errors;
/// everything else is computed in f32.
const IN_TF32: Bounds = Bounds { loss: 1e-3, total: 3e-3, norm: 0.02, apart: 0.1 };

/// The first step under the rules of the MLPerf reference; its batch-wide top-k keeps proposals of
/// every image.
pub(super) fn mlperf_step_matches_f32(open: &Open) {
    let rules = [
        "model.roi.canonical_size=20",
        "model.anchors.stride_rule=nominal",
        "model.anchors.cell_rule=detectron",
        "model.anchors.straddle_filter=true",
        "model.boxes.legacy_plus_one=true",
        "model.rpn.post_nms_scope=batch",
        "model.rpn.post_nms_top_n_train=20",
        "model.rpn.post_nms_top_n_level_train=15",
        "model.mask_head.target_rule=coco_polygon",
        "input.channel_order=bgr",
        "input.resize_filter=pil",
        "solver.bias_lr_factor=2",
        "solver.warmup_rule=shared_delta",
        "solver.first_schedule_step=1",
    ];
    first_step(open, &rules, IN_FP16);
    let place = folder();
    let store = images(place.path());
    let config = micro(&rules);
    let mut device = OnDevice::new(&store, &config, &[SQUARE], Changes::OBSERVED, open(None));
    inputs(&store, &config, &[0, 3]).iter().for_each(|(name, bytes)| device.write(0, name, bytes));
    device.run(0);
    let counts = device.read(0, "proposal_counts");
    println!("proposals of the images of a group: {:?}", counts.as_i32());
    assert_eq!(counts.as_i32().iter().sum::<i32>(), 20, "{counts:?}");
}

fn first_step(open: &Open, set: &[&str], bounds: Bounds) {
    let place = folder();
    let store = images(place.path());
    let config = micro(set);
    let batch = [0, 3];
    let mut free = OnCpu::new(&store, &config, SQUARE, Changes::OBSERVED);
    inputs(&store, &config, &batch).iter().for_each(|(name, bytes)| free.write(name, bytes));
    free.run();
    let given = Changes { given: &PROPOSALS, ..Changes::OBSERVED };
    let mut cpu = OnCpu::new(&store, &config, SQUARE, given);
    let mut device = OnDevice::new(&store, &config, &[SQUARE], given, open(Some(7)));
    let proposals = PROPOSALS.map(|name| (name.to_string(), free.read(name).bytes().to_vec()));
    for (name, bytes) in inputs(&store, &config, &batch).into_iter().chain(proposals) {
        cpu.write(&name, &bytes);
        device.write(0, &name, &bytes);
    }
    cpu.run();
    device.run(0);
    for name in ["rpn_labels", "rpn_sample_idx", "rois", "roi_labels", "roi_matched", "num_rois"] {
        assert_eq!(device.read(0, name), cpu.read(name), "{name}");
    }
    for &name in &cpu.losses {
        let [got, want] = [device.read(0, name), cpu.read(name)].map(|t| f64::from(t.as_f32()[0]));
        println!("{name:<18} f32 {want:.6} here {got:.6} off {:.2e}", relative(got, want));
        assert!(relative(got, want) < bounds.loss, "{name}: {got}, in f32 {want}");
    }
    let norms = [device.read(0, "grad_norms"), cpu.read("grad_norms")];
    let total = norms.each_ref().map(|n| f64::from(*n.as_f32().last().expect("a total")));
    println!("total norm off {:.2e}", relative(total[0], total[1]));
    assert!(relative(total[0], total[1]) < bounds.total, "total norm {total:?}");
    let mut worst = (0.0, "");
    for name in &cpu.trained {
        let name_of = format!("grad/{name}");
        let [got, want] = [device.read(0, &name_of), cpu.read(&name_of)];
        if name.ends_with("kps_score_lowres.bias") {
            // A softmax does not change if a constant is added to all its inputs, so this gradient
            // is only rounding error.
            let [got, want] = [got, want].map(|t| norm(t.as_f32()));
            assert!(got.max(want) < 1e-4 * total[1], "{name}: {got}, in f32 {want}");
            continue;
        }
        let off = relative(norm(got.as_f32()), norm(want.as_f32()));
        let difference: Vec<f32> =
            got.as_f32().iter().zip(want.as_f32()).map(|(g, w)| g - w).collect();
        let apart = norm(&difference) / norm(want.as_f32());
        let fits = off < bounds.norm && apart < bounds.apart;
        assert!(fits, "{name}: norm off {off:.2e}, apart {apart:.2e}");
        if apart > worst.0 {
            worst = (apart, name);
        }
    }
    let control = [device.read(0, "control"), cpu.read("control")];
    let rates = control.each_ref().map(|c| {
        let control = Control::read(c.as_f32());
        [control.rate(1.0), control.rate(2.0)]
    });
    assert_eq!(rates[0], rates[1], "learning rates of weights and biases");
    println!("gradients of {} parameters, worst distance {worst:?}", cpu.trained.len());
}

/// Values after the used part of an input, left by an earlier step, do not affect any result.
pub(super) fn values_past_counts_do_not_change_step(open: &Open) {
    let place = folder();
    let store = images(place.path());
    let config = micro(&["model.roi.canonical_size=20"]);
    let batch = [1, 4];
    let mut stale = empty_slot(&store, &config, batch.len());
    stale.view_mut("pixels").expect("an array").fill(0x5Au8);
    for (name, value) in [("gt_boxes", 31.5f32), ("coords", 17.25)] {
        stale.view_mut(name).expect("an array").fill(value);
    }
    for name in ["gt_classes", "segm_index", "segm_parts", "runs"] {
        stale.view_mut(name).expect("an array").fill(2i32);
    }
    let clean = inputs(&store, &config, &batch);
    let dirty = inputs_from(&store, &config, &batch, stale);
    assert!(clean != dirty, "no input has unused space: nothing was tested");
    let [clean, dirty] = [clean, dirty].map(|inputs| {
        let mut device = OnDevice::new(&store, &config, &[SQUARE], Changes::NONE, open(None));
        let mut cpu = OnCpu::new(&store, &config, SQUARE, Changes::NONE);
        for (name, bytes) in &inputs {
            device.write(0, name, bytes);
            cpu.write(name, bytes);
        }
        device.run(0);
        cpu.run();
        let kept = ["grad_norms", "control"].into_iter().chain(cpu.losses.iter().copied());
        kept.map(|name| [device.read(0, name), cpu.read(name)]).collect::<Vec<_>>()
    });
    assert_eq!(clean, dirty);
}

/// Steps alternate between two padded shapes, which share state and arena; each step matches the
/// CPU.
pub(super) fn two_shapes_can_alternate(open: &Open) {
    let place = folder();
    let store = images(place.path());
    let config = micro(&["solver.learning_rate=0.01"]);
    let wide = ImageSize { height: 64, width: 96 };
    let shapes = [SQUARE, wide];
    let mut device = OnDevice::new(&store, &config, &shapes, Changes::NONE, open(Some(11)));
    let mut cpus = shapes.map(|shape| OnCpu::new(&store, &config, shape, Changes::NONE));
    let mut state = cpus[0].state.clone();
    for step in 0..6 {
        let which = step % 2;
        for (name, bytes) in inputs(&store, &config, &[step, step + 1]) {
            device.write(which, &name, &bytes);
            cpus[which].write(&name, &bytes);
        }
        device.run(which);
        cpus[which].executor.run(&mut state);
        let total = |read: &dyn Fn(&str) -> HostTensor| -> f64 {
            cpus[which].losses.iter().map(|name| f64::from(read(name).as_f32()[0])).sum()
        };
        let got = total(&|name| device.read(which, name));
        let want = total(&|name| cpus[which].read(name));
        assert!(relative(got, want) < 0.05, "step {step}: {got}, in f32 {want}");
    }
    let steps = device.state.fetch().expect("the state").get("step").expect("a state").clone();
    assert_eq!(steps.as_i32(), [6]);
}
