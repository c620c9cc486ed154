//! The real training step as work: each node of the Program with the modelled time of its launches.

use std::any::Any;
use std::sync::Arc;

use configs::{Config, PostNmsScope};
use dali::order::PaddedShape;
use device::{Gpu, Target, Task};
use engine::model::{Inject, ModelSpec, Part, SlotShape, detection_program, training_program};
use engine::runtime::imagined_addresses;
use graph::exec::device::{Place, Prepared};
use graph::program::Pass;
use graph::report::node_cost;
use graph::{Node, NodeId, Program, TensorId};
use kernels::ops::rpn_head::RpnHead;

use super::buckets;
use super::rates::{Alone, Job, Rates, filling};
use super::stage::Stage;

/// COCO's classes, for a config that leaves the number to the data.
const CLASSES: usize = 80;
/// Capacity of objects an image.
const OBJECTS: usize = 100;
/// Kernels that change 4 and 7 of the review fuse into their neighbours.
const FUSED_LATER: [&str; 6] =
    ["relu_mask", "sum_f16", "bias_grad", "upsample_add", "upsample_grad", "conv2d_scale_weights"];
/// Kernels of the mask head that do not stop at the number of positives.
const PADDING_TOO: [&str; 2] = ["relu_mask", "sum_f16"];
/// Kernels that pick a few places of the maps that they read.
const PICKS: [&str; 2] = ["gather_patches_f16x8", "decode_proposals_f16"];

/// Rows of the review's table of parts.
pub(super) const PARTS: [&str; 8] = [
    "preprocess, backbone forward",
    "backbone backward",
    "FPN",
    "RPN head forward",
    "mask head",
    "box head",
    "RoIAlign",
    "RPN loss, proposals, optimizer",
];

/// One launch of a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Piece {
    pub(super) kernel: &'static str,
    pub(super) alone: Alone,
    /// Its work with as many positives as the step has, not at capacity.
    pub(super) flops: f64,
    pub(super) bytes: f64,
    pub(super) blocks: f64,
    /// Times that its blocks fill the GPU.
    pub(super) waves: f64,
    /// True if a later change fuses it away.
    pub(super) fused_later: bool,
}

/// A node of the step.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) node: NodeId,
    /// Index in [`PARTS`].
    pub(super) part: usize,
    pub(super) stream: usize,
    /// Earlier nodes, by launch position, on other streams.
    pub(super) waits: Vec<usize>,
    pub(super) pieces: Vec<Piece>,
}

/// A training step of one rank, ready to be timed.
pub(super) struct Model {
    pub(super) gpu: Gpu,
    pub(super) rates: Rates,
    pub(super) images: usize,
    pub(super) prepared: Prepared,
    /// Trained parameters' gradients.
    pub(super) grads: Vec<TensorId>,
    /// RoIs of an image that the mask head works on, at most.
    pub(super) capacity: f64,
    launches: graph::capture::LaunchList,
}

impl Model {
    /// The step of `images` images of a padded shape, planned for a GPU.
    pub(super) fn new(
        config: &Config,
        images: usize,
        padded: PaddedShape,
        gpu: &Gpu,
    ) -> anyhow::Result<Self> {
        let config = with_groups_of(config, images);
        let built = training_program(&spec(&config, images, padded, gpu))?;
        let roi = &config.model.roi;
        let capacity = roi.batch_size_per_image as f64 * f64::from(roi.positive_fraction);
        Self::of(built.program, images, gpu, capacity)
    }

    /// The detection pass on `images` images of a padded shape, planned for a GPU.
    pub(super) fn detection(
        config: &Config,
        images: usize,
        padded: PaddedShape,
        gpu: &Gpu,
    ) -> anyhow::Result<Self> {
        let built = detection_program(&spec(config, images, padded, gpu))?;
        Self::of(built.program, images, gpu, config.model.detections.per_image as f64)
    }

    fn of(program: Program, images: usize, gpu: &Gpu, capacity: f64) -> anyhow::Result<Self> {
        let program = Arc::new(program);
        let grads = buckets::gradients(&program);
        let prepared = Prepared::new(program, Target::Gpu(gpu.clone()))?;
        let state = imagined_addresses(&prepared);
        let launches =
            prepared.launches(&Place { arena: 1 << 44, inputs: 1 << 43, state: &state })?;
        let rates = Rates::of(gpu, Stage::Now);
        Ok(Self { gpu: gpu.clone(), rates, images, prepared, grads, capacity, launches })
    }

    /// With the rates of this stage.
    pub(super) fn at(self, stage: Stage) -> Self {
        Self { rates: Rates::of(&self.gpu, stage), ..self }
    }

    /// The nodes in launch order, where so many RoIs of an image are positive.
    pub(super) fn works(&self, positives: f64) -> Vec<Work> {
        let program = &self.prepared.program;
        let places = self.prepared.schedule.launches().iter().zip(self.launches.works());
        let work = |(place, work): (&graph::schedule::Launch, &graph::capture::Work)| {
            let node = &program.nodes()[place.node.index()];
            let cost = node_cost(program, node).flops as f64;
            let (outputs, columns) = product_len(program, node);
            let part = part(node);
            let tasks: Vec<&Task> = work.tasks().collect();
            let product = tasks.iter().position(|task| is_product(task.name()));
            let main = product.unwrap_or(0);
            let pieces = tasks.iter().enumerate().filter_map(|(i, task)| {
                let launch = task.kernel()?;
                let starts = |names: &[&str]| names.iter().any(|n| launch.kernel.starts_with(n));
                let counted = node.part.starts_with("mask_head") && !starts(&PADDING_TOO);
                let job = Job {
                    launch,
                    flops: if i == main { cost } else { 0.0 },
                    outputs,
                    columns,
                    bytes: moved_bytes(task),
                    used: if counted { (positives / self.capacity).min(1.0) } else { 1.0 },
                };
                let (blocks, waves) = filling(&self.gpu, &job);
                Some(Piece {
                    kernel: launch.kernel,
                    alone: self.rates.alone(&self.gpu, &job),
                    flops: job.used * job.flops,
                    bytes: job.used * job.bytes,
                    blocks,
                    waves,
                    fused_later: starts(&FUSED_LATER),
                })
            });
            let pieces = pieces.collect();
            Work {
                node: place.node,
                part,
                stream: place.stream,
                waits: place.waits.clone(),
                pieces,
            }
        };
        places.map(work).collect()
    }

    /// The launch position of the node that makes each tensor of a list.
    pub(super) fn producers(&self, tensors: &[TensorId]) -> Vec<usize> {
        let nodes = self.prepared.program.nodes();
        let launches = self.prepared.schedule.launches().iter().enumerate();
        let makes = launches.filter(|(_, launch)| {
            nodes[launch.node.index()].outputs.iter().any(|t| tensors.contains(t))
        });
        makes.map(|(position, _)| position).collect()
    }

    /// Launch positions of the update that reads any tensor of a list.
    pub(super) fn updates(&self, tensors: &[TensorId]) -> Vec<usize> {
        let nodes = self.prepared.program.nodes();
        let launches = self.prepared.schedule.launches().iter().enumerate();
        let reads = launches.filter(|(_, launch)| {
            let node = &nodes[launch.node.index()];
            node.pass == Pass::Update && node.inputs.iter().any(|t| tensors.contains(t))
        });
        reads.map(|(position, _)| position).collect()
    }
}

/// A model on images of a padded shape.
fn spec<'a>(config: &'a Config, images: usize, padded: PaddedShape, gpu: &Gpu) -> ModelSpec<'a> {
    ModelSpec {
        config,
        num_classes: config.model.classes_or(CLASSES),
        images,
        padded: padded.into(),
        slot: SlotShape {
            pixels: 3 * padded.height * padded.width,
            objects: OBJECTS,
            parts: 4 * OBJECTS,
            coords: 128 * OBJECTS,
            runs: 1024,
        },
        target: Target::Gpu(gpu.clone()),
        part: Part::whole(),
        inject: Inject::default(),
    }
}

/// The config with groups that divide the images of a rank: the rank's images are one where the
/// config's groups do not, with as many proposals an image.
fn with_groups_of(config: &Config, images: usize) -> Config {
    let mut config = config.clone();
    let group = &mut config.train.images_per_group;
    if !images.is_multiple_of((*group).max(1)) {
        let rpn = &mut config.model.rpn;
        if rpn.post_nms_scope == PostNmsScope::Batch {
            rpn.post_nms_top_n_train = (rpn.post_nms_top_n_train * images / *group).max(1);
        }
        *group = images.max(1);
    }
    config
}

fn is_product(kernel: &str) -> bool {
    ["_large", "_small", "_unaligned"].iter().any(|tile| kernel.ends_with(tile))
}

/// What a task reaches, but for kernels that pick.
fn moved_bytes(task: &Task) -> f64 {
    let touches = task.touches();
    let bytes = |writes: bool| -> usize {
        touches.iter().filter(|t| t.access.writes() == writes).map(|t| t.bytes).sum()
    };
    let read = if PICKS.contains(&task.name()) { bytes(true) } else { bytes(false) };
    (read + bytes(true)) as f64
}

/// The row of [`PARTS`] that a node belongs to.
fn part(node: &Node) -> usize {
    let part = node.part.as_str();
    let top = graph::report::top_part(part);
    match top {
        "preprocess" => 0,
        "backbone" if node.pass == Pass::Forward => 0,
        "backbone" => 1,
        "fpn" => 2,
        "rpn" if part == "rpn.head" => 3,
        "mask_head" | "box_head" if part.ends_with(".pool") => 6,
        "mask_head" => 4,
        "box_head" => 5,
        _ => 7,
    }
}

/// Elements of a node's product, and its columns if a block makes all of them.
fn product_len(program: &Program, node: &Node) -> (f64, Option<f64>) {
    let len = |t: &TensorId| program.desc(*t).len() as f64;
    if (node.op.as_ref() as &dyn Any).is::<RpnHead>() {
        // The hidden maps, which no tensor holds: outputs are A and 4A of each of their positions.
        let [hidden, anchors] = [1, 3].map(|input| len(&node.inputs[input]));
        let outputs: f64 = node.outputs.iter().map(len).sum();
        return (outputs / (5.0 * anchors) * hidden, Some(hidden));
    }
    (node.outputs.first().map_or(1.0, len), None)
}
