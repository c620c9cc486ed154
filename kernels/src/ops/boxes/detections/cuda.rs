//! CUDA launches of `detections`: scores, classes, count, merge.

use device::{Access, Arg, BLOCK, Buffer, Launch, LaunchArgs, StructArg, Workspace};

use super::{Detections, DetectionsInputs};
use crate::{DType, TensorDesc};

/// Boxes of a chunk of NMS, as in `nms.cuh`.
const CHUNK: usize = 64;
/// Shared memory that every device gives a block.
const SHARED_BYTES: usize = 48 << 10;

/// Arrays of `Scratch` in `detections.cu`, in its order.
const SCORES: usize = 0;
const KEYS: usize = 1;
const BOXES: usize = 2;
const KEPT: usize = 3;
const KEPT_COUNTS: usize = 4;
const ARRAYS: usize = 5;

/// Extents, and offset and length of each array of the scratch memory.
struct Plan {
    rois: usize,
    classes: usize,
    images: usize,
    /// Deltas of an RoI: of each class, or of all.
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

    /// `Scratch`; the arrays that a kernel does not touch are null.
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

pub(super) fn workspace_bytes(op: &Detections, inputs: &[TensorDesc]) -> usize {
    let inputs = DetectionsInputs::of(inputs);
    Plan::new(op, [inputs.class_logits, inputs.box_deltas, inputs.network_sizes]).bytes
}

pub(super) fn launches(op: &Detections, args: &LaunchArgs<'_>) -> Vec<Launch> {
    use Access::{Read, Write};
    let inputs = DetectionsInputs::of(&args.inputs);
    let (logits, counts) = (inputs.class_logits, args.outputs[4]);
    let half = logits.dtype() == DType::F16;
    assert_eq!(logits.dtype(), inputs.box_deltas.dtype(), "logits and deltas of one element type");
    let plan = Plan::new(op, [logits, inputs.box_deltas, inputs.network_sizes].map(|b| b.desc));
    let DetectionsInputs { box_deltas, rois, image_idx, num_rois, network_sizes, .. } = inputs;
    let reads = [box_deltas, rois, image_idx, num_rois, network_sizes].map(Buffer::read);
    let rois = StructArg::new().pointers(reads, 5).arg();
    let setting = plan.setting(op);
    let name = |f16, f32| if half { f16 } else { f32 };

    // A warp for each RoI, fewer in a block where the scores of more do not fit.
    let row_bytes = 4 * (plan.classes + 1);
    let warps = (SHARED_BYTES / row_bytes).clamp(1, BLOCK as usize / 32);
    let score = name("detections_score_f16", "detections_score_f32");
    let score = Launch::new(score, [plan.rois.div_ceil(warps), 1, 1])
        .block(32 * warps as u32)
        .shared(warps * row_bytes)
        .arg(logits.read())
        .arg(rois.clone())
        .arg(setting.clone())
        .arg(plan.piece(args.workspace, SCORES, Write));
    let classes = name("detections_classes_f16", "detections_classes_f32");
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
        .int(op.per_image);
    // Without images or room one block still writes the number of detections.
    let places = plan.classes.max(1) * op.per_image;
    let blocks = places.div_ceil(BLOCK as usize).max(1);
    let found = [0, 1, 2, 3, 5].map(|i| args.outputs[i].write());
    let merge = name("detections_merge_f16", "detections_merge_f32");
    let merge = Launch::new(merge, [blocks, plan.images.max(1), 1])
        .arg(rois)
        .arg(setting)
        .arg(plan.scratch(args.workspace, &[(KEPT, Read), (KEPT_COUNTS, Read)]))
        .arg(counts.read())
        .arg(StructArg::new().pointers(found, 5).arg());
    vec![score, classes, count, merge]
}
