//! The training step: preprocess, forward, losses, backward, optimizer, as one Program.

use std::sync::Arc;

use configs::{BoxLoss, ChannelOrder, MaskTargetRule, ModelKind, Schedule};
use graph::autodiff::differentiate;
use graph::program::Pass;
use graph::prune::prune;
use graph::{GraphError, TensorId};
use kernels::device::DeviceKind;
use kernels::ops::accumulate::{Accumulate, AddAccumulated};
use kernels::ops::control_step::{ControlStep, LrSchedule};
use kernels::ops::decide_flips::DecideFlips;
use kernels::ops::encode_boxes::EncodeBoxes;
use kernels::ops::giou_loss::GiouLoss;
use kernels::ops::grad_norms::GradNorms;
use kernels::ops::mask_bce_loss::MaskBceLoss;
use kernels::ops::mask_targets::{MaskRule, MaskTargets};
use kernels::ops::preprocess::Preprocess;
use kernels::ops::roi_candidates::RoiCandidates;
use kernels::ops::sample_rois::SampleRois;
use kernels::ops::select_columns::SelectColumns;
use kernels::ops::sgd::{Sgd, SgdGroup};
use kernels::ops::smooth_l1_loss::SmoothL1Loss;
use kernels::ops::softmax_cross_entropy::SoftmaxCrossEntropy;
use kernels::ops::transform_boxes::TransformBoxes;
use kernels::{Role, TensorDesc};

use super::backbone::backbone;
use super::fpn::fpn;
use super::heads::{Rois, box_head, mask_head};
use super::inputs::{ImageInputs, ObjectInputs};
use super::net::Net;
use super::params::ParamKind;
use super::ring::{RingLayout, publish};
use super::rpn::{Proposals, Rpn};
use super::{BuiltProgram, MicroStep, ModelSpec};
use crate::runtime::MASTER;

/// The losses in the order of the reference's logs; a Faster R-CNN lacks the mask loss.
pub const LOSS_NAMES: [&str; 5] =
    ["loss_classifier", "loss_box_reg", "loss_mask", "loss_objectness", "loss_rpn_box_reg"];

/// Builds the training step. Kept tensors: the losses under [`LOSS_NAMES`], `control` (a
/// [`kernels::ops::control_step::Control`]) and `grad_norms` (each trained parameter's, then the
/// total; scaled by the loss scale).
///
/// # Errors
/// A config that the ops refuse, with the part of the model.
pub fn training_program(spec: &ModelSpec<'_>) -> Result<BuiltProgram, GraphError> {
    let mut net = Net::new(spec);
    let images = ImageInputs::declare(&mut net.program, spec);
    let objects = ObjectInputs::declare(&mut net.program, spec);
    net.part("preprocess");
    let flip = DecideFlips {
        seed: spec.config.train.seed,
        probability: spec.config.input.flip_probability,
    };
    let flips = net.program.apply1(flip, &[objects.image_keys])?;
    let x = preprocess(&mut net, images, flips)?;
    let transform = TransformBoxes { plus_one: spec.config.model.boxes.legacy_plus_one };
    let inputs =
        [objects.gt_boxes, objects.gt_counts, images.image_sizes, images.network_sizes, flips];
    let gt_boxes = net.program.apply1(transform, &inputs)?;
    let maps = backbone(&mut net, x)?;
    let maps = fpn(&mut net, &maps)?;
    let rpn = Rpn::new(&mut net, maps.clone())?;
    let proposals = rpn.proposals(&mut net, images, true)?;
    let rpn_losses = rpn.losses(&mut net, images, objects, gt_boxes)?;
    let sampled = sample_rois(&mut net, proposals, images, objects, gt_boxes)?;
    let mut losses = box_losses(&mut net, &maps, &sampled, gt_boxes, images)?.to_vec();
    if spec.config.model.kind == ModelKind::MaskRcnn {
        losses.push(mask_loss(&mut net, &maps, &sampled, images, objects, flips)?);
    }
    losses.extend([rpn_losses.objectness, rpn_losses.box_reg]);
    for (name, loss) in loss_names(spec.config.model.kind).iter().zip(&losses) {
        net.program.keep(name, *loss);
    }
    let names = loss_names(spec.config.model.kind);
    let named: Vec<_> = names.into_iter().zip(losses.iter().copied()).collect();
    let ring = optimize(&mut net, &losses, &named)?;
    prune(&mut net.program);
    Ok(BuiltProgram { ring, ..net.finish() })
}

/// Names of the losses of a kind of model, in order.
pub(crate) fn loss_names(kind: ModelKind) -> Vec<&'static str> {
    let has_mask = kind == ModelKind::MaskRcnn;
    LOSS_NAMES.into_iter().filter(|name| has_mask || *name != "loss_mask").collect()
}

pub(super) fn preprocess(
    net: &mut Net<'_>,
    images: ImageInputs,
    flips: TensorId,
) -> Result<TensorId, GraphError> {
    let input = &net.spec.config.input;
    let op = Preprocess {
        height: net.spec.padded.height,
        width: net.spec.padded.width,
        mean: input.mean,
        std: input.std,
        pixel_scale: input.pixel_scale,
        bgr: input.channel_order == ChannelOrder::Bgr,
    };
    let inputs =
        [images.pixels, images.image_sizes, images.network_sizes, flips, images.num_images];
    let x = net.program.apply1(op, &inputs)?;
    net.observe("batch", x);
    Ok(x)
}

/// Sampled RoIs with labels and matches; `mask` holds the positives alone.
#[derive(Debug, Clone, Copy)]
struct Sampled {
    all: LabelledRois,
    mask: LabelledRois,
}

#[derive(Debug, Clone, Copy)]
struct LabelledRois {
    rois: Rois,
    labels: TensorId,
    matched: TensorId,
}

fn sample_rois(
    net: &mut Net<'_>,
    proposals: Proposals,
    images: ImageInputs,
    objects: ObjectInputs,
    gt_boxes: TensorId,
) -> Result<Sampled, GraphError> {
    net.part("roi_sampling");
    let config = &net.spec.config.model;
    let batch = config.roi.batch_size_per_image;
    let fraction = config.roi.positive_fraction;
    if net.spec.inject.roi_samples {
        let positives = (batch as f32 * fraction) as usize;
        return Ok(Sampled {
            all: injected(net, "roi", batch),
            mask: injected(net, "mask_roi", positives),
        });
    }
    let candidates = RoiCandidates {
        fg_iou: config.roi.fg_iou,
        bg_iou: config.roi.bg_iou,
        plus_one: config.boxes.legacy_plus_one,
    };
    let inputs = [
        proposals.boxes,
        proposals.anchor_idx,
        proposals.counts,
        gt_boxes,
        objects.gt_classes,
        objects.gt_counts,
        images.num_images,
    ];
    let c = net.program.apply(candidates, &inputs)?;
    let sampler = SampleRois {
        batch,
        positive_fraction: fraction,
        seed: net.spec.config.train.seed,
        key: net.spec.inject.sample_key(),
    };
    let inputs = [c[0], c[1], c[2], c[3], c[4], objects.image_keys];
    let s = net.program.apply(sampler, &inputs)?;
    let labelled = |s: &[TensorId]| LabelledRois {
        rois: Rois { boxes: s[0], image_idx: s[1], count: s[4] },
        labels: s[2],
        matched: s[3],
    };
    let names = ["rois", "roi_image_idx", "roi_labels", "roi_matched", "num_rois"];
    for (name, tensor) in names.iter().zip(&s) {
        net.observe(name, *tensor);
    }
    Ok(Sampled { all: labelled(&s[..5]), mask: labelled(&s[5..]) })
}

/// Inputs in place of the sampler's outputs: `{what}s`, `{what}_image_idx`, `{what}_labels`,
/// `{what}_matched`, `num_{what}s`.
fn injected(net: &mut Net<'_>, what: &str, per_image: usize) -> LabelledRois {
    let m = net.spec.images * per_image;
    let mut input = |name: String, role, shape: &[usize]| {
        net.program.input(&name, TensorDesc::new(role, shape))
    };
    let boxes = input(format!("{what}s"), Role::Box, &[m, 4]);
    let image_idx = input(format!("{what}_image_idx"), Role::Index, &[m]);
    let labels = input(format!("{what}_labels"), Role::Index, &[m]);
    let matched = input(format!("{what}_matched"), Role::Index, &[m]);
    let count = input(format!("num_{what}s"), Role::Index, &[1]);
    LabelledRois { rois: Rois { boxes, image_idx, count }, labels, matched }
}

fn box_losses(
    net: &mut Net<'_>,
    maps: &[TensorId],
    sampled: &Sampled,
    gt_boxes: TensorId,
    images: ImageInputs,
) -> Result<[TensorId; 2], GraphError> {
    let config = &net.spec.config.model;
    let ipg = net.spec.config.train.images_per_group;
    let LabelledRois { rois, labels, matched } = sampled.all;
    let num = images.num_images;
    let (logits, deltas) = box_head(net, maps, rois)?;
    net.part("box_head.losses");
    let weights = config.roi.box_weights;
    let encode = EncodeBoxes { weights, plus_one: config.boxes.legacy_plus_one };
    let inputs = [rois.boxes, rois.image_idx, matched, gt_boxes, labels];
    let encoded = net.program.apply(encode, &inputs)?;
    let (targets, matched_boxes) = (encoded[0], encoded[1]);
    let inputs = [logits, labels, rois.image_idx, num];
    let classifier = net.program.apply1(SoftmaxCrossEntropy { ipg }, &inputs)?;
    let select = SelectColumns { width: 4, modulo: false };
    let deltas = net.program.apply1(select, &[deltas, labels])?;
    let box_reg = match config.box_head.loss {
        BoxLoss::SmoothL1 => {
            let op = SmoothL1Loss { beta: config.box_head.beta, ipg };
            net.program.apply1(op, &[deltas, targets, labels, rois.image_idx, num])?
        }
        BoxLoss::Giou => {
            let inputs = [deltas, rois.boxes, matched_boxes, labels, rois.image_idx, num];
            net.program.apply1(GiouLoss { weights, ipg }, &inputs)?
        }
    };
    Ok([classifier, box_reg])
}

fn mask_loss(
    net: &mut Net<'_>,
    maps: &[TensorId],
    sampled: &Sampled,
    images: ImageInputs,
    objects: ObjectInputs,
    flips: TensorId,
) -> Result<TensorId, GraphError> {
    let config = &net.spec.config.model;
    let ipg = net.spec.config.train.images_per_group;
    let LabelledRois { rois, labels, matched } = sampled.mask;
    let logits = mask_head(net, maps, rois)?;
    net.part("mask_head.losses");
    let targets = MaskTargets {
        side: 2 * config.mask_head.pooled,
        rule: match config.mask_head.target_rule {
            MaskTargetRule::CocoPolygon => MaskRule::CocoPolygon,
            MaskTargetRule::RoiAlignBitmap => MaskRule::RoiAlignBitmap,
        },
        plus_one: config.boxes.legacy_plus_one,
    };
    let inputs = [
        rois.boxes,
        rois.image_idx,
        matched,
        rois.count,
        objects.segm_index,
        objects.segm_parts,
        objects.coords,
        objects.runs,
        images.image_sizes,
        images.network_sizes,
        flips,
    ];
    let targets = net.program.apply1(targets, &inputs)?;
    net.observe("mask_targets", targets);
    let inputs = [logits, labels, targets, rois.image_idx, rois.count, images.num_images];
    net.program.apply1(MaskBceLoss { ipg }, &inputs)
}

/// A parameter that the step trains.
#[derive(Debug)]
struct Trained {
    weight: TensorId,
    kind: ParamKind,
    name: String,
    shape: Vec<usize>,
}

/// Backward pass, then what the part of the step does with the gradients. Returns what a device
/// publishes of it.
fn optimize(
    net: &mut Net<'_>,
    losses: &[TensorId],
    named: &[(&'static str, TensorId)],
) -> Result<Option<RingLayout>, GraphError> {
    let loss_scale = net.program.state("loss_scale", TensorDesc::new(Role::Scalar, &[1]));
    let trained: Vec<_> = net
        .params()
        .iter()
        .filter_map(|p| {
            let (name, shape) = (p.name.clone(), p.shape.clone());
            p.trained.map(|weight| Trained { weight, kind: p.kind, name, shape })
        })
        .collect();
    let weights: Vec<_> = trained.iter().map(|t| t.weight).collect();
    let grads = differentiate(&mut net.program, losses, loss_scale, &weights)?;
    if net.spec.inject.observe {
        for (grad, t) in grads.iter().zip(&trained) {
            net.program.keep(&format!("grad/{}", t.name), *grad);
        }
    }
    net.program.set_pass(Pass::Update);
    net.part("optimizer");
    let mut results = Vec::new();
    match net.spec.micro {
        MicroStep::Early => accumulate(net, &trained, &grads)?,
        MicroStep::Whole => results = solve(net, &trained, grads, loss_scale)?,
        MicroStep::Last => {
            let grads = add_accumulated(net, &trained, grads)?;
            results = solve(net, &trained, grads, loss_scale)?;
        }
    }
    if net.spec.device == DeviceKind::Cpu {
        return Ok(None);
    }
    publish(net, named, &results, trained.len() + 1).map(Some)
}

/// Adds the gradients to those of the micro-steps before.
fn accumulate(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: &[TensorId],
) -> Result<(), GraphError> {
    let (mut updates, held) = accumulated(net, trained);
    updates.push(held);
    net.program.add(Arc::new(Accumulate), grads, &updates)?;
    Ok(())
}

/// The gradients of all micro-steps.
fn add_accumulated(
    net: &mut Net<'_>,
    trained: &[Trained],
    mut grads: Vec<TensorId>,
) -> Result<Vec<TensorId>, GraphError> {
    let (sums, held) = accumulated(net, trained);
    grads.extend(sums);
    net.program.add(Arc::new(AddAccumulated), &grads, &[held])
}

/// The state of micro-steps: a sum for each parameter, and how many micro-steps they hold.
fn accumulated(net: &mut Net<'_>, trained: &[Trained]) -> (Vec<TensorId>, TensorId) {
    let sum = |t: &Trained| {
        let desc = TensorDesc::new(Role::Master, &t.shape);
        net.program.state(&format!("accumulated/{}", t.name), desc)
    };
    let sums = trained.iter().map(sum).collect();
    (sums, net.program.state("micro_steps_held", TensorDesc::new(Role::Index, &[1])))
}

/// Norms, control of the step, and the update of every trained parameter. Returns control and
/// norms.
fn solve(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Vec<TensorId>,
    loss_scale: TensorId,
) -> Result<Vec<TensorId>, GraphError> {
    let config = net.spec.config;
    let index =
        |net: &mut Net<'_>, name: &str| net.program.state(name, TensorDesc::new(Role::Index, &[1]));
    let [step, growth, skipped] =
        ["step", "loss_scale_growth", "skipped_steps"].map(|name| index(net, name));
    let norms = net.program.apply(GradNorms {}, &grads)?;
    net.program.keep("grad_norms", norms[0]);
    let control = ControlStep {
        schedule: schedule(config),
        clip_norm: config.solver.clip_norm,
        growth_interval: config.solver.loss_scale_growth_interval as u32,
        dynamic: config.solver.dynamic_loss_scale,
        micro_steps: config.train.micro_steps as u32,
    };
    let updates = [step, loss_scale, growth, skipped];
    let control = net.program.add(Arc::new(control), &norms, &updates)?[0];
    net.program.keep("control", control);
    update(net, trained, grads, control)?;
    Ok(vec![control, norms[0]])
}

/// The node that updates every trained parameter, its momentum, and its master if it has one.
fn update(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Vec<TensorId>,
    control: TensorId,
) -> Result<(), GraphError> {
    let on_device = net.spec.device == DeviceKind::Cuda;
    let has_master =
        |net: &Net<'_>, t: &Trained| on_device && net.program.desc(t.weight).role == Role::Weight;
    let beside = |net: &mut Net<'_>, prefix: &str, t: &Trained| {
        let desc = TensorDesc::new(Role::Master, &t.shape);
        net.program.state(&format!("{prefix}{}", t.name), desc)
    };
    let momenta: Vec<_> = trained.iter().map(|t| beside(net, "momentum/", t)).collect();
    let mut masters = Vec::new();
    let mut groups = Vec::new();
    for t in trained {
        let master = has_master(net, t);
        if master {
            masters.push(beside(net, MASTER, t));
        }
        groups.push(group(&net.spec.config.solver, t.kind, master));
    }
    let solver = &net.spec.config.solver;
    let sgd = Sgd { momentum: solver.momentum as f32, nesterov: solver.nesterov, groups };
    let inputs: Vec<_> = grads.into_iter().chain([control]).collect();
    let updates: Vec<_> = trained.iter().map(|t| t.weight).chain(momenta).chain(masters).collect();
    net.program.add(Arc::new(sgd), &inputs, &updates)?;
    Ok(())
}

/// How a parameter of this kind is updated.
fn group(solver: &configs::Solver, kind: ParamKind, master: bool) -> SgdGroup {
    let decay = solver.weight_decay as f32;
    let or_decay = |own: Option<f64>| own.map_or(decay, |d| d as f32);
    let (weight_decay, lr_factor) = match kind {
        ParamKind::Bias => (or_decay(solver.bias_weight_decay), solver.bias_lr_factor as f32),
        ParamKind::Norm => (or_decay(solver.norm_weight_decay), 1.0),
        _ => (decay, 1.0),
    };
    SgdGroup { weight_decay, lr_factor, master }
}

/// The learning-rate schedule of a config.
pub(crate) fn schedule(config: &configs::Config) -> LrSchedule {
    let solver = &config.solver;
    let (base, warmup_steps) = (solver.learning_rate, solver.warmup_steps);
    let warmup_factor = solver.warmup_factor;
    match solver.schedule {
        Schedule::Multistep => LrSchedule::Multistep {
            base,
            warmup_steps,
            warmup_factor,
            milestones: solver.milestones.clone(),
            gamma: solver.gamma,
        },
        Schedule::Cosine => LrSchedule::Cosine {
            base,
            warmup_steps,
            warmup_factor,
            total_steps: config.train.steps,
            min: solver.min_learning_rate,
        },
    }
}
