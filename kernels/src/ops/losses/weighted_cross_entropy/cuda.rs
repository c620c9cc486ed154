//! CUDA launches of `weighted_cross_entropy` and its gradient.

use device::{Access, Arg, Launch, LaunchArgs, StructArg};

use super::{WeightedCrossEntropy, WeightedCrossEntropyInputs};
use crate::TensorDesc;
use crate::contract::Declared;
use crate::losses::launch::{MAX_BLOCKS, ROW_THREADS, blocks, loss_gradient, partial_bytes};
use crate::losses::row_loss::rows_argument;

/// A warp works on a row.
const ROWS_A_BLOCK: usize = ROW_THREADS as usize / 32;
/// Weights of classes that an argument holds.
const CHUNK: usize = 512;
/// Alignment of the parts of the scratch.
const ALIGNMENT: usize = 256;

/// Scratch: the weights of the classes, what each row is multiplied by, and the partial sums.
struct Scratch {
    rows_offset: usize,
    partials_offset: usize,
    bytes: usize,
}

impl Scratch {
    fn of(logits: &TensorDesc) -> Self {
        let floats = |len: usize| (len * size_of::<f32>()).next_multiple_of(ALIGNMENT);
        let rows_offset = floats(logits.dim(1));
        let partials_offset = rows_offset + floats(logits.dim(0));
        let bytes = partials_offset + partial_bytes(blocks(logits.dim(0), ROWS_A_BLOCK));
        Self { rows_offset, partials_offset, bytes }
    }
}

pub(super) fn workspace_bytes(logits: &TensorDesc) -> usize {
    Scratch::of(logits).bytes
}

/// The launches of a loss or its gradient, as far as they are the same.
struct Common<'a, 'b> {
    op: &'a WeightedCrossEntropy,
    args: &'a LaunchArgs<'b>,
    scratch: Scratch,
    rows: usize,
    classes: usize,
}

impl<'a, 'b> Common<'a, 'b> {
    fn new(op: &'a WeightedCrossEntropy, args: &'a LaunchArgs<'b>) -> Self {
        let logits = WeightedCrossEntropyInputs::of(&args.inputs).logits;
        let (rows, classes) = (logits.dim(0), logits.dim(1));
        Self { op, args, scratch: Scratch::of(logits.desc), rows, classes }
    }

    fn class_weights(&self, access: Access) -> Arg {
        self.args.workspace.piece(0, 4 * self.classes, access)
    }

    fn scales(&self, access: Access) -> Arg {
        self.args.workspace.piece(self.scratch.rows_offset, 4 * self.rows, access)
    }

    fn rows(&self) -> Arg {
        rows_argument(&WeightedCrossEntropy::CONTRACT, self.args, 0, (self.op.ipg, None))
    }

    /// The weights of the classes, and what each row is multiplied by, into the scratch.
    fn prepare(&self) -> Vec<Launch> {
        let chunks = self.op.class_weights.chunks(CHUNK).enumerate().map(|(i, chunk)| {
            let mut values = [0.0f32; CHUNK];
            values[..chunk.len()].copy_from_slice(chunk);
            let part = self.args.workspace.piece(4 * i * CHUNK, 4 * chunk.len(), Access::Write);
            Launch::new("weighted_cross_entropy_classes", [1, 1, 1])
                .block(CHUNK as u32)
                .arg(StructArg::new().field(values).arg())
                .int(chunk.len())
                .arg(part)
        });
        let scales = Launch::new("weighted_cross_entropy_scales", [MAX_BLOCKS, 1, 1])
            .block(ROW_THREADS)
            .arg(self.rows())
            .arg(self.class_weights(Access::Read))
            .int(self.classes)
            .arg(self.scales(Access::Write));
        chunks.chain([scales]).collect()
    }

    /// A launch with a warp per row, and the arguments that both have.
    fn row_launch(&self, kernel: &'static str) -> Launch {
        let logits = *WeightedCrossEntropyInputs::of(&self.args.inputs).logits;
        Launch::new(kernel, [blocks(self.rows, ROWS_A_BLOCK), 1, 1])
            .block(ROW_THREADS)
            .arg(logits.read())
            .arg(self.args.inputs[1].read())
            .arg(self.class_weights(Access::Read))
            .arg(self.scales(Access::Read))
            .int(self.rows)
            .int(self.classes)
            .arg(self.op.label_smoothing)
    }
}

pub(super) fn launches(op: &WeightedCrossEntropy, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let common = Common::new(op, args);
    let (offset, blocks) = (common.scratch.partials_offset, blocks(common.rows, ROWS_A_BLOCK));
    let partials = |access| args.workspace.piece(offset, partial_bytes(blocks), access);
    let mut launches = common.prepare();
    launches.push(common.row_launch("weighted_cross_entropy_f16").arg(partials(Access::Write)));
    launches.push(
        Launch::new("weighted_cross_entropy_total", [1, 1, 1])
            .block(MAX_BLOCKS as u32)
            .arg(partials(Access::Read))
            .int(blocks)
            .arg(args.outputs[0].write()),
    );
    launches
}

pub(super) fn grad_launches(op: &WeightedCrossEntropy, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let common = Common::new(op, args);
    let grad = common
        .row_launch("weighted_cross_entropy_grad_f16")
        .arg(loss_gradient(args.inputs[WeightedCrossEntropyInputs::LEN]))
        .arg(args.outputs[0].write());
    common.prepare().into_iter().chain([grad]).collect()
}
