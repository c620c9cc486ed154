//! CUDA launches of `mask_targets`.

use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};

use super::{MaskTargetRule, MaskTargets, MaskTargetsInputs};

/// Source columns of a strip.
const STRIP: usize = 32;

pub(super) fn launches(op: &MaskTargets, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (inputs, targets) = (MaskTargetsInputs::of(&args.inputs), args.outputs[0]);
    let kernel = match op.rule {
        MaskTargetRule::CocoPolygon => "mask_targets_polygon",
        MaskTargetRule::RoiAlignBitmap => "mask_targets_average",
    };
    let launch = Launch::new(kernel, [targets.dim(0), 1, 1])
        .arg(rois(inputs))
        .arg(segments(inputs))
        .arg(targets.write())
        .int(op.side);
    vec![match op.rule {
        MaskTargetRule::CocoPolygon => launch.arg(op.plus_one).arg(op.min_side),
        MaskTargetRule::RoiAlignBitmap => launch.shared(op.side * STRIP * 4),
    }]
}

/// Boxes, images, objects and count of the rows.
fn rois(inputs: MaskTargetsInputs<&Buffer<'_>>) -> Arg {
    let MaskTargetsInputs { mask_rois, image_idx, matched, count, .. } = inputs;
    let tensors = [mask_rois, image_idx, matched, count].map(Buffer::read);
    StructArg::new().pointers(&tensors, tensors.len()).arg()
}

/// The objects and images, and the capacities of an image.
fn segments(inputs: MaskTargetsInputs<&Buffer<'_>>) -> Arg {
    let MaskTargetsInputs { segm_index, segm_parts, coords, runs, .. } = inputs;
    let tensors = [segm_index, segm_parts, coords, runs, inputs.views].map(Buffer::read);
    let dims =
        [segm_index.dim(0), segm_index.dim(1), segm_parts.dim(1), coords.dim(1), runs.dim(1)];
    let dims = dims.map(|extent| match i32::try_from(extent) {
        Ok(extent) => extent,
        Err(_) => panic!("mask_targets: {extent} does not fit an int"),
    });
    StructArg::new().pointers(&tensors, tensors.len()).field(dims).arg()
}
