//! CUDA launch of `flatten_rois`.

use device::{BLOCK, Launch, LaunchArgs};

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (proposals, counts) = (args.inputs[0], args.inputs[1]);
    let (images, capacity) = (proposals.dim(0), proposals.dim(1));
    // At least one block, which writes the number of RoIs.
    let grid = [images.max(1), capacity.div_ceil(BLOCK as usize).max(1), 1];
    vec![
        Launch::new("flatten_rois", grid)
            .arg(proposals.read())
            .arg(counts.read())
            .arg(args.outputs[0].write())
            .arg(args.outputs[1].write())
            .arg(args.outputs[2].write())
            .int(images)
            .int(capacity),
    ]
}
