//! CUDA launches of `class_masks` and its gradients: a block for each row.

use device::{Access, Arg, Launch, LaunchArgs};

use super::ClassMasksGradInputs;
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
    let (x, w) = (args.inputs[0], args.inputs[1]);
    let name = kernel(["class_masks_f16x8", "class_masks_f16"], x.dim(3));
    vec![sizes(Launch::new(name, [x.dim(0), 1, 1]).tensors(args), x.desc, w.desc)]
}

/// Sums of a row: by channel for its filter, and of g; with `bias_grad` also of dx by channel.
fn row_sums(x: &TensorDesc, bias_grad: bool) -> usize {
    x.dim(3) + 1 + if bias_grad { x.dim(3) } else { 0 }
}

/// Bytes of the sums of all rows.
pub(super) fn partial_bytes(x: &TensorDesc, bias_grad: bool) -> usize {
    x.dim(0) * row_sums(x, bias_grad) * size_of::<f32>()
}

pub(super) fn grad_launches(relu: bool, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let ClassMasksGradInputs { g, x, w, labels, count } = ClassMasksGradInputs::of(&args.inputs);
    let [dx, dw, db] = [0, 1, 2].map(|i| args.outputs[i]);
    for weights in [dw, db] {
        assert_eq!(weights.dtype(), DType::F32, "{:?}: gradients of weights are f32", weights.desc);
    }
    let bias_grad = args.outputs.get(3);
    let sums = row_sums(x.desc, bias_grad.is_some());
    let bytes = partial_bytes(x.desc, bias_grad.is_some());
    let partials = |access| args.workspace.piece(0, bytes, access);
    let name = kernel(["class_masks_grad_f16x8", "class_masks_grad_f16"], x.dim(3));
    let rows = Launch::new(name, [x.dim(0), 1, 1])
        .arg(g.read())
        .arg(x.read())
        .arg(w.read())
        .arg(labels.read())
        .arg(count.read())
        .arg(dx.write())
        .arg(partials(Access::Write));
    let classes = w.dim(0) + usize::from(bias_grad.is_some());
    let total = [(x.dim(3) + 1).div_ceil(COLUMNS), classes, 1];
    let total = Launch::new("class_masks_grad_total", total)
        .arg(partials(Access::Read))
        .arg(labels.read())
        .arg(count.read())
        .arg(dw.write())
        .arg(db.write())
        .arg(bias_grad.map_or(Arg::Null, |sums| sums.write()));
    let rows = sizes(rows, x.desc, w.desc).arg(relu).int(sums);
    let total = total.int(x.dim(0)).int(x.dim(3)).int(w.dim(0)).int(sums);
    vec![rows, total]
}
