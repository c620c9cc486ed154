//! The actual training step as tasks: each Program node with the predicted time of its launches.

use std::any::Any;
use std::sync::Arc;

use dali::order::PaddedShape;
use device::{Gpu, Ranks, Target, Task};
use engine::config::{Config, PostNmsScope};
use engine::model::{Division, ModelSpec, Part, SlotShape, training_program};
use engine::runtime::imagined_addresses;
use graph::exec::device::{Place, Prepared};
use graph::report::node_cost;
use graph::{Node, Program, TensorId};
use kernels::ops::conv2d::Conv2d;
use kernels::ops::gemm_op::GradInput;
use kernels::ops::rpn_head::RpnHead;
use kernels::time::{Case, Peak, Rates, Time};
use serde::Serialize;

use super::network::Network;
use super::timeline::{self, simulate};

/// COCO's number of classes, for configs that take the number from the data.
const CLASSES: usize = 80;
/// Maximum number of objects per image.
const OBJECTS: usize = 100;
/// Kernels that read only a few elements of their input maps.
const PICKS: [&str; 2] = ["gather_patches_f16x8", "decode_proposals_f16"];
/// Name prefix of weight gradient kernels: all of their blocks have work, even if only some rows
/// (RoIs) are in use.
const SHARED_ROWS: &str = "conv2d_grad_weight";

/// Minimum microseconds of kernels that are limited by a chain of dependent operations, independent
/// of the number of images; estimated by hand from the length of the chain.
const CHAINS: &[(&str, f64)] = &[
    ("nms_proposals_sort", 40.0),
    ("nms_proposals_compare", 110.0),
    ("nms_proposals_walk", 60.0),
    ("nms_proposals_merge", 20.0),
    ("mask_targets", 200.0),
    ("top_k_", 6.0),
    ("sample_anchors_", 5.0),
    ("sample_rois_", 15.0),
    ("softmax_cross_entropy", 10.0),
    ("smooth_l1_loss", 10.0),
    ("bce_loss", 10.0),
    ("mask_bce_loss_total", 10.0),
    ("control_step", 5.0),
    ("publish", 3.0),
    // Limited by the tile with the most overlapping RoIs.
    ("roi_align_grad_tiles", 50.0),
];

/// Number of SMs that a collective occupies, one per channel; a typical value.
const CHANNELS: f64 = 16.0;

/// A node of the step.
#[derive(Debug, Clone, Serialize)]
pub(super) struct NodePlan {
    pub(super) name: String,
    pub(super) stream: usize,
    pub(super) kernels: Vec<&'static str>,
    /// FLOPs of the op for the step's actual number of positives, not at capacity.
    pub(super) flops: f64,
    pub(super) bytes: f64,
    /// Bytes that the node all-reduces over GPUs.
    pub(super) summed_bytes: usize,
    /// Minimum duration: FLOPs and bytes at the data sheet's peak rates.
    pub(super) floor_ms: f64,
    /// Duration when nothing else runs, including a launch gap per kernel.
    pub(super) ms: f64,
    /// Start of the node, from the start of the step.
    pub(super) start_ms: f64,
}

/// The nodes of a step in launch order, and the duration of the step.
pub(super) struct StepPlan {
    pub(super) nodes: Vec<NodePlan>,
    pub(super) ms: f64,
}

impl StepPlan {
    /// The sum of a field over all nodes.
    pub(super) fn sum(&self, of: fn(&NodePlan) -> f64) -> f64 {
        self.nodes.iter().map(of).sum()
    }

    pub(super) fn kernels(&self) -> usize {
        self.nodes.iter().map(|node| node.kernels.len()).sum()
    }
}

/// The conditions under which a step is predicted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) case: Case,
    pub(super) gpus: usize,
    pub(super) network: Network,
    /// Average positive RoIs per image.
    pub(super) positives: f64,
}

/// The launches of one rank's training step, whose time can be predicted.
pub(super) struct Model {
    gpu: Gpu,
    pub(super) prepared: Prepared,
    /// Maximum positive RoIs per image for the mask and keypoint heads.
    capacity: f64,
    launches: graph::capture::LaunchList,
}

impl Model {
    /// The step of one of `gpus` GPUs, with `images` images of a padded shape per GPU.
    pub(super) fn new(
        config: &Config,
        gpus: usize,
        images: usize,
        padded: PaddedShape,
        gpu: &Gpu,
    ) -> anyhow::Result<Self> {
        let config = with_batch_of(config, gpus, images);
        let target = Target::Gpu(gpu.clone());
        let ranks = Ranks { rank: 0, count: gpus };
        let division = Division::new(&config.train, &target, ranks)?;
        let spec = ModelSpec {
            config: &config,
            num_classes: config.model.classes_or(CLASSES),
            images,
            padded: padded.into(),
            slot: SlotShape::imagined(padded.height, padded.width, OBJECTS),
            target: target.clone(),
            part: Part::updating(&division),
            observe: false,
        };
        let program = Arc::new(training_program(&spec)?.program);
        let roi = &config.model.roi;
        let capacity = roi.batch_size_per_image as f64 * f64::from(roi.positive_fraction);
        let prepared = Prepared::new(program, target)?;
        let state = imagined_addresses(&prepared);
        let launches =
            prepared.launches(&Place { arena: 1 << 44, inputs: 1 << 43, state: &state })?;
        Ok(Self { gpu: gpu.clone(), prepared, capacity, launches })
    }

    /// Predicts the step.
    pub(super) fn step(&self, setting: &Setting) -> StepPlan {
        let rates = Rates::of(&self.gpu, setting.case);
        let places = self.prepared.schedule.launches().iter().zip(self.launches.works());
        let works = places.map(|(place, work)| self.work(&rates, setting, place, work));
        let (mut nodes, tasks): (Vec<NodePlan>, Vec<timeline::Task>) = works.unzip();
        let spans = simulate(&tasks);
        for (node, span) in nodes.iter_mut().zip(&spans) {
            node.start_ms = span.start;
        }
        StepPlan { nodes, ms: spans.iter().map(|span| span.end).fold(0.0, f64::max) }
    }

    /// Predicts a node, and makes its task for the timeline.
    fn work(
        &self,
        rates: &Rates,
        setting: &Setting,
        place: &graph::schedule::Launch,
        work: &graph::capture::Work,
    ) -> (NodePlan, timeline::Task) {
        let program = &self.prepared.program;
        let node = &program.nodes()[place.node.index()];
        let counted = ["mask_head", "keypoint_head"].iter().any(|head| node.part.starts_with(head));
        let used = if counted { (setting.positives / self.capacity).min(1.0) } else { 1.0 };
        let flops = used * node_cost(program, node).flops as f64;
        let tasks: Vec<&Task> = work.tasks().collect();
        let product = tasks.iter().position(|task| rates.tflops(task.name()).is_some());
        let main = product.unwrap_or(0);
        let pieces = tasks.iter().enumerate().filter_map(|(i, task)| {
            let flops = if i == main { flops } else { 0.0 };
            self.piece(rates, task, used, (node, flops))
        });
        let pieces: Vec<_> = pieces.collect();
        let bytes = pieces.iter().fold(0.0, |sum, (_, bytes, _)| sum + bytes);
        let sum = |of: fn(&Time) -> f64| pieces.iter().map(|(.., time)| of(time)).sum::<f64>();
        let mut ms = (rates.gap_us() * pieces.len() as f64 + sum(|time| time.us)) / 1e3;
        let mut share = sum(|time| time.filled_us) / 1e3 / ms.max(f64::MIN_POSITIVE);
        let sums = tasks.iter().map(|task| match task {
            Task::AllReduce(sum) => sum.bytes(),
            _ => 0,
        });
        let summed_bytes = sums.sum();
        if summed_bytes > 0 {
            ms = setting.network.all_reduce_ms(setting.gpus, summed_bytes);
            share = CHANNELS / self.gpu.multiprocessors as f64;
        }
        // The data sheet's rate is for tensor cores: ops that do not use them are bounded by their
        // bytes.
        let products = if node.op.traits().on_tensor_cores { flops } else { 0.0 };
        let plan = NodePlan {
            name: program.node_name(place.node),
            stream: place.stream,
            kernels: pieces.iter().map(|(kernel, ..)| *kernel).collect(),
            flops,
            bytes,
            summed_bytes,
            floor_ms: Peak::of(&self.gpu.name).map_or(0.0, |s| s.least_ms(products, bytes)),
            ms,
            start_ms: 0.0,
        };
        let (stream, keeps, waits) = (place.stream, summed_bytes > 0, place.waits.clone());
        (plan, timeline::Task { stream, ms, share: share.min(1.0), keeps, waits })
    }

    /// Every launch, with its stream.
    #[cfg(test)]
    pub(super) fn launches(&self) -> impl Iterator<Item = (usize, &device::Launch)> {
        let places = self.prepared.schedule.launches().iter().zip(self.launches.works());
        places.flat_map(|(place, work)| {
            work.tasks().filter_map(|task| Some((place.stream, task.kernel()?)))
        })
    }

    /// Predicts one task of a node: kernel, bytes and time; `None` if the task is not a kernel
    /// launch.
    fn piece(
        &self,
        rates: &Rates,
        task: &Task,
        used: f64,
        (node, flops): (&Node, f64),
    ) -> Option<(&'static str, f64, Time)> {
        let launch = task.kernel()?;
        let starts = |name: &str| launch.kernel.starts_with(name);
        let grid: f64 = launch.grid.iter().map(|extent| f64::from(*extent)).product();
        let blocks = if starts(SHARED_ROWS) { grid } else { (used * grid).ceil() };
        let (outputs, columns) = gemm_len(&self.prepared.program, node);
        let outputs = if starts(SHARED_ROWS) { outputs } else { used * outputs };
        let bytes = used * moved_bytes(task);
        let product = rates.tflops(launch.kernel).is_some();
        let work = kernels::time::Work {
            blocks,
            bytes,
            flops: if product { 0.0 } else { flops },
            depth: if product { flops / outputs / 2.0 } else { 0.0 },
            columns,
        };
        let mut time = rates.launch(launch, &work);
        if let Some((_, us)) = CHAINS.iter().find(|(name, _)| starts(name)) {
            time.us = time.us.max(*us);
        }
        Some((launch.kernel, bytes, time))
    }
}

/// The config with `images` images per GPU. If `images_per_group` does not divide `images`, it
/// becomes `images`, with an unchanged number of proposals per image.
fn with_batch_of(config: &Config, gpus: usize, images: usize) -> Config {
    let mut config = config.clone();
    config.train.batch_size = gpus * images;
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

/// Bytes that a task reads and writes; a kernel in `PICKS` reads as many as it writes.
fn moved_bytes(task: &Task) -> f64 {
    let touches = task.touches();
    let bytes = |writes: bool| -> usize {
        touches.iter().filter(|t| t.access.writes() == writes).map(|t| t.bytes).sum()
    };
    let read = if PICKS.contains(&task.name()) { bytes(true) } else { bytes(false) };
    (read + bytes(true)) as f64
}

/// Number of output elements of a node's GEMM, and its number of columns if each block computes all
/// columns.
fn gemm_len(program: &Program, node: &Node) -> (f64, Option<usize>) {
    let len = |t: &TensorId| program.desc(*t).len();
    if (node.op.as_ref() as &dyn Any).is::<RpnHead>() {
        // The hidden map is not stored as a tensor. Per position, the outputs have A + 4A elements,
        // and the hidden map has `hidden` elements.
        let [hidden, anchors] = [1, 3].map(|input| len(&node.inputs[input]));
        let outputs: usize = node.outputs.iter().map(len).sum();
        return (outputs as f64 / (5 * anchors) as f64 * hidden as f64, Some(hidden));
    }
    let op: &dyn Any = node.op.as_ref();
    let layer = op.downcast_ref().map(Conv2d::layer);
    let layer = layer.or_else(|| Some(op.downcast_ref::<GradInput>()?.layer));
    let zeros = layer.map_or(1, |layer| {
        let [x, y] = [node.inputs[0], node.outputs[0]].map(|t| program.desc(t).dim(-1));
        layer.depth_on_gpu(x, y)
    });
    // Groups of a convolution that are merged into one GEMM also multiply the zeros between them.
    // The GEMM's depth is computed as FLOPs divided by this length, so dividing the length
    // increases the depth accordingly.
    (node.outputs.first().map_or(1, len) as f64 / zeros as f64, None)
}
