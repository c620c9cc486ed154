//! CUDA launches of `mask_targets`.

use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};

use super::{MaskRule, MaskTargets};

/// Source columns of a strip.
const STRIP: usize = 32;

pub(super) fn launches(op: &MaskTargets, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let targets = args.outputs[0];
    let kernel = match op.rule {
        MaskRule::CocoPolygon => "mask_targets_polygon",
        MaskRule::RoiAlignBitmap => "mask_targets_average",
    };
    let launch = Launch::new(kernel, [targets.dim(0), 1, 1])
        .arg(rois(&args.inputs[..4]))
        .arg(segments(&args.inputs[4..]))
        .arg(targets.write())
        .int(op.side);
    vec![match op.rule {
        MaskRule::CocoPolygon => launch.arg(op.plus_one),
        MaskRule::RoiAlignBitmap => launch.shared(op.side * STRIP * 4),
    }]
}

/// Boxes, images, objects and count of the rows.
fn rois(inputs: &[Buffer<'_>]) -> Arg {
    let tensors: Vec<Arg> = inputs.iter().map(Buffer::read).collect();
    StructArg::new().pointers(&tensors, tensors.len()).arg()
}

/// The objects and images, and the capacities of an image.
fn segments(inputs: &[Buffer<'_>]) -> Arg {
    let tensors: Vec<Arg> = inputs.iter().map(Buffer::read).collect();
    let [index, parts, coords, runs] = inputs[..4] else { unreachable!("seven tensors") };
    let dims = [index.dim(0), index.dim(1), parts.dim(1), coords.dim(1), runs.dim(1)];
    let dims = dims.map(|extent| match i32::try_from(extent) {
        Ok(extent) => extent,
        Err(_) => panic!("mask_targets: {extent} does not fit an int"),
    });
    StructArg::new().pointers(&tensors, tensors.len()).field(dims).arg()
}
