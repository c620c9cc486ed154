//! The real training step as work: each node of the Program with the modelled time of its launches.

use std::any::Any;
use std::sync::Arc;

use configs::{Config, PostNmsScope};
use dali::order::PaddedShape;
use device::{Gpu, Target, Task};
use engine::model::{ModelSpec, Part, SlotShape, training_program};
use engine::runtime::imagined_addresses;
use graph::exec::device::{Place, Prepared};
use graph::program::Pass;
use graph::report::node_cost;
use graph::{Node, NodeId, Program, TensorId};
use kernels::occupancy::Slots;
use kernels::ops::conv2d::Conv2d;
use kernels::ops::product::GradInput;
use kernels::ops::rpn_head::RpnHead;
use kernels::time::{Case, Peak, Rates, Time};

use super::buckets;

/// COCO's classes, for a config that leaves the number to the data.
const CLASSES: usize = 80;
/// Capacity of objects an image.
const OBJECTS: usize = 100;
/// Kernels that pick a few places of the maps that they read.
const PICKS: [&str; 2] = ["gather_patches_f16x8", "decode_proposals_f16"];
/// Kernels of a weight's gradient: rows in use are shared among all of their blocks.
const SHARED_ROWS: &str = "conv2d_grad_weight";

/// Chains of dependent steps, in microseconds, whatever the number of images: by hand from the
/// kernels' rounds.
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
    // The tile where most RoIs meet.
    ("roi_align_grad_tiles", 50.0),
];

/// A node of the step.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) node: NodeId,
    pub(super) stream: usize,
    /// Earlier nodes, by launch position, on other streams.
    pub(super) waits: Vec<usize>,
    pub(super) kernels: Vec<&'static str>,
    /// With as many positives as the step has, not at capacity; FLOPs are those of the op.
    pub(super) flops: f64,
    pub(super) bytes: f64,
    /// Blocks of its longest launch that find work, and how often they fill the GPU.
    pub(super) blocks: f64,
    pub(super) waves: f64,
    /// By the data sheet: products and bytes at full rate.
    pub(super) floor_ms: f64,
    /// Duration when nothing else runs, with a gap for each kernel.
    pub(super) ms: f64,
    /// Part of the GPU that it takes meanwhile.
    pub(super) share: f64,
}

/// A training step of one rank, ready to be timed.
pub(super) struct Model {
    pub(super) gpu: Gpu,
    pub(super) images: usize,
    pub(super) prepared: Prepared,
    /// Trained parameters' gradients.
    pub(super) grads: Vec<TensorId>,
    /// Maximum positive RoIs of an image, which the mask and keypoint heads work on.
    capacity: f64,
    launches: graph::capture::LaunchList,
}

/// A launch and its time.
struct Piece {
    kernel: &'static str,
    bytes: f64,
    blocks: f64,
    waves: f64,
    time: Time,
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
        let program = Arc::new(training_program(&spec(&config, images, padded, gpu))?.program);
        let roi = &config.model.roi;
        let capacity = roi.batch_size_per_image as f64 * f64::from(roi.positive_fraction);
        let grads = buckets::gradients(&program);
        let prepared = Prepared::new(program, Target::Gpu(gpu.clone()))?;
        let state = imagined_addresses(&prepared);
        let launches =
            prepared.launches(&Place { arena: 1 << 44, inputs: 1 << 43, state: &state })?;
        Ok(Self { gpu: gpu.clone(), images, prepared, grads, capacity, launches })
    }

    /// The nodes in launch order, where so many RoIs of an image are positive.
    pub(super) fn works(&self, positives: f64, case: Case) -> Vec<Work> {
        let rates = Rates::of(&self.gpu, case);
        let program = &self.prepared.program;
        let places = self.prepared.schedule.launches().iter().zip(self.launches.works());
        let work = |(place, work): (&graph::schedule::Launch, &graph::capture::Work)| {
            let node = &program.nodes()[place.node.index()];
            let counted =
                ["mask_head", "keypoint_head"].iter().any(|head| node.part.starts_with(head));
            let used = if counted { (positives / self.capacity).min(1.0) } else { 1.0 };
            let flops = used * node_cost(program, node).flops as f64;
            let tasks: Vec<&Task> = work.tasks().collect();
            let product = tasks.iter().position(|task| rates.tflops(task.name()).is_some());
            let main = product.unwrap_or(0);
            let pieces = tasks.iter().enumerate().filter_map(|(i, task)| {
                let flops = if i == main { flops } else { 0.0 };
                self.piece(&rates, task, used, (node, flops))
            });
            let pieces: Vec<Piece> = pieces.collect();
            let longest = pieces.iter().max_by(|a, b| a.time.us.total_cmp(&b.time.us));
            let bytes = pieces.iter().map(|piece| piece.bytes).sum();
            let sum = |of: fn(&Time) -> f64| pieces.iter().map(|p| of(&p.time)).sum::<f64>();
            let us = rates.gap_us() * pieces.len() as f64 + sum(|time| time.us);
            // The data sheet's rate is that of tensor cores: other ops have their bytes as a floor.
            let products = if node.op.traits().on_tensor_cores { flops } else { 0.0 };
            Work {
                node: place.node,
                stream: place.stream,
                waits: place.waits.clone(),
                flops,
                bytes,
                blocks: longest.map_or(0.0, |piece| piece.blocks),
                waves: longest.map_or(0.0, |piece| piece.waves),
                floor_ms: Peak::of(&self.gpu.name).map_or(0.0, |s| s.least_ms(products, bytes)),
                ms: us / 1e3,
                share: if us > 0.0 { (sum(|time| time.filled_us) / us).min(1.0) } else { 0.0 },
                kernels: pieces.iter().map(|piece| piece.kernel).collect(),
            }
        };
        places.map(work).collect()
    }

    /// Every launch, with its stream.
    #[cfg(test)]
    pub(super) fn launches(&self) -> impl Iterator<Item = (usize, &device::Launch)> {
        let places = self.prepared.schedule.launches().iter().zip(self.launches.works());
        places.flat_map(|(place, work)| {
            work.tasks().filter_map(|task| Some((place.stream, task.kernel()?)))
        })
    }

    /// A launch of a node, if its task is one.
    fn piece(
        &self,
        rates: &Rates,
        task: &Task,
        used: f64,
        (node, flops): (&Node, f64),
    ) -> Option<Piece> {
        let launch = task.kernel()?;
        let starts = |name: &str| launch.kernel.starts_with(name);
        let grid: f64 = launch.grid.iter().map(|extent| f64::from(*extent)).product();
        let blocks = if starts(SHARED_ROWS) { grid } else { (used * grid).ceil() };
        let (outputs, columns) = product_len(&self.prepared.program, node);
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
        let waves = Slots::of(&self.gpu, launch).waves(blocks);
        Some(Piece { kernel: launch.kernel, bytes, blocks, waves, time })
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
        slot: SlotShape::imagined(padded.height, padded.width, OBJECTS),
        target: Target::Gpu(gpu.clone()),
        part: Part::whole(),
        observe: false,
    }
}

/// The config with groups that divide the images of a rank: if the config's own groups do not, the
/// rank's images are one group, with as many proposals per image.
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

/// Bytes that a task accesses; a kernel that picks reads only as many as it writes.
fn moved_bytes(task: &Task) -> f64 {
    let touches = task.touches();
    let bytes = |writes: bool| -> usize {
        touches.iter().filter(|t| t.access.writes() == writes).map(|t| t.bytes).sum()
    };
    let read = if PICKS.contains(&task.name()) { bytes(true) } else { bytes(false) };
    (read + bytes(true)) as f64
}

/// Elements of a node's product, and its columns if a block makes all of them.
fn product_len(program: &Program, node: &Node) -> (f64, Option<usize>) {
    let len = |t: &TensorId| program.desc(*t).len();
    if (node.op.as_ref() as &dyn Any).is::<RpnHead>() {
        // The hidden maps, which no tensor holds: outputs are A and 4A of each of their positions.
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
    // The outputs that would have as many products, if each summed no zeros.
    (node.outputs.first().map_or(1, len) as f64 / zeros as f64, None)
}
