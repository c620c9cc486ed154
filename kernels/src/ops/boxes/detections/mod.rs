//! Detections of each image from the box head's outputs.
//!
//! Matches torchvision's `RoIHeads.postprocess_detections`: softmax, a box for each class, clip to
//! the image, drop scores <= `score_threshold` and sides < `min_size`, NMS within each class, the
//! best `per_image`. Detections are ranked by (score descending, roi * K + class ascending), so the
//! order is unique. maskrcnn-benchmark finds the same set in a different order (unless scores tie
//! at the cutoff).
//!
//! Edge cases: a RoI with a NaN logit gives no detection.

mod cases;

use device::{Access, Arg, BLOCK, Buffer, Launch, LaunchArgs, StructArg, Workspace};
use rayon::prelude::*;

use crate::boxes::{
    Box4, ImageSize, as_boxes, as_boxes_mut, at_most, clip, decode, is_small, nms_sorted, rank_key,
};
use crate::contract::{Dims, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::{Cost, OpError, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Computes scores, decodes boxes and applies NMS. D is `per_image`; rows in use are
    /// contiguous, in image order.
    pub struct Detections = "detections" {
        /// Detections must have a score above this.
        pub score_threshold: f32,
        /// A detection is suppressed if its IoU with a higher-scoring detection of the same class
        /// is above this.
        pub nms_threshold: f32,
        /// Detections kept per image.
        pub per_image: usize,
        /// Weights of dx, dy, dw, dh in the box coding.
        pub weights: [f32; 4],
        /// Minimum width and height in network pixels; torchvision: 1e-2.
        pub min_size: f32,
        /// Box corners are inclusive: width = x2 - x1 + 1.
        pub plus_one: bool,
    }
    in DetectionsInputs {
        /// Class logits; column 0 is the background.
        class_logits: real "[M, K+1]",
        /// `4(K+1)` columns, or 4 shared by all classes.
        box_deltas: real "[M, Deltas]",
        /// Boxes to which the deltas are applied.
        rois: f32 "[M, 4]",
        /// Image of the RoI.
        image_idx: i32 "[M]",
        /// Number of RoIs in use.
        num_rois: i32 "[1]",
        /// Height and width of the network's input without padding.
        network_sizes: i32 "[N, 2]",
    }
    out {
        /// Detections in network pixels, image after image, then zeros.
        boxes: Box "[N*D, 4]",
        /// Descending within an image.
        scores: Score "[N*D]",
        /// 1 is the first foreground class.
        labels: Index "[N*D]",
        /// Image of the detection, or -1.
        image_of_row: Index "[N*D]",
        /// Number of detections of each image.
        counts: Index "[N]",
        /// Number of detections of all images.
        num_detections: Index "[1]",
    }
}

impl Kernel for Detections {
    fn sizes(&self, dims: &mut Dims) {
        dims.bind("D", self.per_image);
    }

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let (of, columns) = (DetectionsInputs::of(inputs), dims.get("K+1"));
        if columns == 0 {
            let expected = "[M, K+1] with a column for the background".to_string();
            return Err(check::shape_error(dims.op(), "class_logits", of.class_logits, expected));
        }
        match dims.get("Deltas") {
            4 => Ok(()),
            deltas if deltas == 4 * columns => Ok(()),
            _ => {
                let expected = format!("[M, {}], 4 per class, or [M, 4]", 4 * columns);
                Err(check::shape_error(dims.op(), "box_deltas", of.box_deltas, expected))
            }
        }
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 5 * DetectionsInputs::of(inputs).class_logits.len() as u64)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        let inputs = DetectionsInputs::of(inputs);
        Plan::new(self, [inputs.class_logits, inputs.box_deltas, inputs.network_sizes]).bytes
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        use Access::{Read, Write};
        let inputs = DetectionsInputs::of(&args.inputs);
        let (logits, counts) = (inputs.class_logits, args.outputs[4]);
        let plan =
            Plan::new(self, [logits, inputs.box_deltas, inputs.network_sizes].map(|b| b.desc));
        let DetectionsInputs { box_deltas, rois, image_idx, num_rois, network_sizes, .. } = inputs;
        let reads = [box_deltas, rois, image_idx, num_rois, network_sizes].map(Buffer::read);
        let rois = StructArg::new().pointers(reads, 5).arg();
        let setting = plan.setting(self);

        // One warp per RoI; the number of RoIs per block is limited by the shared memory for their
        // scores.
        let row_bytes = 4 * (plan.classes + 1);
        let warps = (SHARED_BYTES / row_bytes).clamp(1, BLOCK as usize / 32);
        let score = "detections_score_f16";
        let score = Launch::new(score, [plan.rois.div_ceil(warps), 1, 1])
            .block(32 * warps as u32)
            .shared(warps * row_bytes)
            .arg(logits.read())
            .arg(rois.clone())
            .arg(setting.clone())
            .arg(plan.piece(args.workspace, SCORES, Write));
        let classes = "detections_classes_f16";
        let touched =
            [(SCORES, Read), (KEYS, Write), (BOXES, Write), (KEPT, Write), (KEPT_COUNTS, Write)];
        let classes = Launch::new(classes, [plan.classes, plan.images, 1])
            .shared(8 * plan.rois.div_ceil(CHUNK))
            .arg(rois.clone())
            .arg(setting.clone())
            .arg(plan.scratch(args.workspace, &touched));
        let count = Launch::new("detections_count", [plan.images, 1, 1])
            .arg(plan.piece(args.workspace, KEPT_COUNTS, Read))
            .arg(counts.write())
            .int(plan.classes)
            .int(self.per_image);
        // Without images or output slots one block still writes the number of detections.
        let places = plan.classes.max(1) * self.per_image;
        let blocks = places.div_ceil(BLOCK as usize).max(1);
        let found = [0, 1, 2, 3, 5].map(|i| args.outputs[i].write());
        let merge = "detections_merge_f16";
        let merge = Launch::new(merge, [blocks, plan.images.max(1), 1])
            .arg(rois)
            .arg(setting)
            .arg(plan.scratch(args.workspace, &[(KEPT, Read), (KEPT_COUNTS, Read)]))
            .arg(counts.read())
            .arg(StructArg::new().pointers(found, 5).arg());
        vec![score, classes, count, merge]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let num_images = args.outputs[4].shape()[0];
        let mut candidates = candidates(self, args, num_images);
        // Grouped by image and class, best first.
        candidates.par_sort_unstable_by_key(|c| (c.image, c.class, c.key));
        let groups: Vec<&[Candidate]> =
            candidates.chunk_by(|a, b| (a.image, a.class) == (b.image, b.class)).collect();
        let kept: Vec<Vec<Candidate>> =
            groups.into_par_iter().map(|group| survive(self, group)).collect();

        let mut images: Vec<Vec<Candidate>> = vec![Vec::new(); num_images];
        for c in kept.into_iter().flatten() {
            images[c.image].push(c);
        }
        for image in &mut images {
            image.sort_unstable_by_key(|c| c.key);
            image.truncate(self.per_image);
        }
        write(&images, args);
    }
}

/// NMS chunk size in boxes, as in `nms.cuh`.
const CHUNK: usize = 64;
/// Shared memory available to a block on every device.
const SHARED_BYTES: usize = 48 << 10;

/// Indices of the arrays of `Scratch` in `detections.cu`, in declaration order.
const SCORES: usize = 0;
const KEYS: usize = 1;
const BOXES: usize = 2;
const KEPT: usize = 3;
const KEPT_COUNTS: usize = 4;
const ARRAYS: usize = 5;

/// Sizes of the problem, and offset and length of each array in the scratch memory.
struct Plan {
    rois: usize,
    classes: usize,
    images: usize,
    /// Groups of four deltas per RoI: one per class, or one shared by all.
    groups: usize,
    pieces: [(usize, usize); ARRAYS],
    bytes: usize,
}

impl Plan {
    fn new(op: &Detections, [logits, deltas, sizes]: [&TensorDesc; 3]) -> Self {
        let (rois, classes, images) = (logits.shape[0], logits.shape[1] - 1, sizes.shape[0]);
        let groups = deltas.shape[1] / 4;
        let lengths = [
            4 * classes * rois,
            8 * classes * rois,
            16 * classes * rois,
            8 * images * classes * op.per_image,
            4 * images * classes,
        ];
        let mut bytes = 0usize;
        let pieces = lengths.map(|length| {
            let offset = bytes.next_multiple_of(256);
            bytes = offset + length;
            (offset, length)
        });
        Self { rois, classes, images, groups, pieces, bytes }
    }

    fn piece(&self, workspace: Workspace, array: usize, access: Access) -> Arg {
        let (offset, bytes) = self.pieces[array];
        workspace.piece(offset, bytes, access)
    }

    /// The kernel argument `Scratch`; arrays that the kernel does not access are null.
    fn scratch(&self, workspace: Workspace, touched: &[(usize, Access)]) -> Arg {
        let mut pointers = vec![Arg::Null; ARRAYS];
        for &(array, access) in touched {
            pointers[array] = self.piece(workspace, array, access);
        }
        StructArg::new().pointers(pointers, ARRAYS).arg()
    }

    /// `Setting`.
    fn setting(&self, op: &Detections) -> Arg {
        let extents = [self.rois, self.classes, self.images, op.per_image, self.groups];
        StructArg::new()
            .field([op.score_threshold, op.nms_threshold, op.min_size])
            .field(i32::from(op.plus_one))
            .field(op.weights)
            .field(extents.map(|v| v as i32))
            .arg()
    }
}

/// A pair of RoI and class that passed the score and size thresholds.
#[derive(Clone, Copy)]
struct Candidate {
    image: usize,
    class: usize,
    key: u64,
    score: f32,
    b: Box4,
}

/// All candidates, RoI after RoI.
fn candidates(op: &Detections, args: &CpuArgs<'_>, num_images: usize) -> Vec<Candidate> {
    let inputs = DetectionsInputs::of(&args.inputs);
    let classes = inputs.class_logits.shape()[1];
    let (logits, deltas) = (inputs.class_logits.f32(), as_boxes(inputs.box_deltas.f32()));
    // Groups of four deltas per RoI: one per class, or one shared by all classes.
    let groups = inputs.box_deltas.shape()[1] / 4;
    let (rois, image_idx) = (as_boxes(inputs.rois.f32()), inputs.image_idx.i32());
    let num_rois = at_most(inputs.num_rois.i32()[0], rois.len());
    let sizes = inputs.network_sizes.i32();
    (0..num_rois)
        .into_par_iter()
        .flat_map_iter(|roi| {
            let image = usize::try_from(image_idx[roi]).ok().filter(|&n| n < num_images);
            let row = roi * classes..(roi + 1) * classes;
            let scores = if image.is_some() { softmax(&logits[row]) } else { Vec::new() };
            let deltas = &deltas[roi * groups..][..groups];
            scores.into_iter().enumerate().skip(1).filter_map(move |(class, score)| {
                let image = image?;
                // False for a NaN score.
                let passes = score > op.score_threshold;
                if !passes {
                    return None;
                }
                let b =
                    decode(&rois[roi], &deltas[class.min(groups - 1)], &op.weights, op.plus_one);
                let b = clip(&b, ImageSize::from_row(&sizes[2 * image..]), op.plus_one);
                let key = rank_key(score, (roi * (classes - 1) + class - 1) as u32);
                let large = !is_small(&b, op.min_size, op.plus_one);
                large.then_some(Candidate { image, class, key, score, b })
            })
        })
        .collect()
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let highest = logits.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let mut scores: Vec<f32> = logits.iter().map(|x| (x - highest).exp()).collect();
    let sum: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|s| *s /= sum);
    scores
}

/// NMS of one class in one image; keeps at most `per_image` detections.
fn survive(op: &Detections, group: &[Candidate]) -> Vec<Candidate> {
    let boxes: Vec<Box4> = group.iter().map(|c| c.b).collect();
    let kept = nms_sorted(&boxes, op.nms_threshold, op.plus_one, op.per_image);
    kept.into_iter().map(|i| group[i]).collect()
}

fn write(images: &[Vec<Candidate>], args: &mut CpuArgs<'_>) {
    let [boxes, scores, labels, image_idx, counts, num_detections] = exactly(&mut args.outputs);
    let (boxes, scores) = (as_boxes_mut(boxes.f32()), scores.f32());
    let (labels, image_idx, counts) = (labels.i32(), image_idx.i32(), counts.i32());
    boxes.fill([0.0; 4]);
    scores.fill(0.0);
    labels.fill(0);
    image_idx.fill(-1);
    let mut row = 0;
    for (n, image) in images.iter().enumerate() {
        counts[n] = image.len() as i32;
        for c in image {
            (boxes[row], scores[row]) = (c.b, c.score);
            (labels[row], image_idx[row]) = (c.class as i32, n as i32);
            row += 1;
        }
    }
    num_detections.i32()[0] = row as i32;
}
