//! CUDA launches of `class_masks` and its gradients: a block for each row.

use device::{Access, Launch, LaunchArgs};

use super::{ClassMasksGradInputs, ClassMasksInputs};
use crate::{DType, TensorDesc};

/// Halves of a 16-byte load; as in `vector.cuh`.
const WIDE: usize = 8;
/// Columns of a block of the sums by class.
const COLUMNS: usize = 32;

fn kernel(wide: [&'static str; 2], channels: usize) -> &'static str {
    wide[usize::from(!channels.is_multiple_of(WIDE))]
}

/// `M`, positions of a row, `C`, `K`.
fn sizes(launch: Launch, x: &TensorDesc, w: &TensorDesc) -> Launch {
    launch.int(x.dim(0)).int(x.dim(1) * x.dim(2)).int(x.dim(3)).int(w.dim(0))
}

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let ClassMasksInputs { x, w, b, labels, count } = ClassMasksInputs::of(&args.inputs);
    let name = kernel(["class_masks_f16x8", "class_masks_f16"], x.dim(3));
    let launch = Launch::new(name, [x.dim(0), 1, 1])
        .arg(x.read())
        .arg(w.read())
        .arg(b.read())
        .arg(labels.read())
        .arg(count.read())
        .arg(args.outputs[0].write());
    vec![sizes(launch, x.desc, w.desc)]
}

/// Sums of each row by channel, and of its gradient.
pub(super) fn partial_bytes(x: &TensorDesc) -> usize {
    x.dim(0) * (x.dim(3) + 1) * size_of::<f32>()
}

pub(super) fn grad_launches(relu: bool, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let ClassMasksGradInputs { g, x, w, labels, count } = ClassMasksGradInputs::of(&args.inputs);
    let [dx, dw, db] = [0, 1, 2].map(|i| args.outputs[i]);
    for weights in [dw, db] {
        assert_eq!(weights.dtype(), DType::F32, "{:?}: gradients of weights are f32", weights.desc);
    }
    let partials = |access| args.workspace.piece(0, partial_bytes(x.desc), access);
    let name = kernel(["class_masks_grad_f16x8", "class_masks_grad_f16"], x.dim(3));
    let rows = Launch::new(name, [x.dim(0), 1, 1])
        .arg(g.read())
        .arg(x.read())
        .arg(w.read())
        .arg(labels.read())
        .arg(count.read())
        .arg(dx.write())
        .arg(partials(Access::Write));
    let total = [(x.dim(3) + 1).div_ceil(COLUMNS), w.dim(0), 1];
    let total = Launch::new("class_masks_grad_total", total)
        .arg(partials(Access::Read))
        .arg(labels.read())
        .arg(count.read())
        .arg(dw.write())
        .arg(db.write());
    vec![sizes(rows, x.desc, w.desc).arg(relu), total.int(x.dim(0)).int(x.dim(3))]
}
