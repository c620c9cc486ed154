//! CUDA launch of `preprocess`.

use device::{Launch, LaunchArgs, StructArg};

use super::{Preprocess, ResizeFilter};

/// Pixels of a row that a block makes; as in `preprocess.cu`.
const PIXELS: usize = 256;

pub(super) fn launches(op: &Preprocess, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (pixels, x) = (*op.inputs(&args.inputs).pixels, args.outputs[0]);
    let extents = [op.height, op.width, op.channels, pixels.dim(1), pixels.dim(0)];
    let extents = extents.map(|v| i32::try_from(v).expect("an extent that fits an int"));
    let transform = StructArg::new()
        .field(op.mean)
        .field(op.std)
        .field(op.pixel_scale)
        .field(extents)
        .field(i32::from(op.bgr))
        .arg();
    let grid = [pixels.dim(0) * op.height, op.width.div_ceil(PIXELS), 1];
    let kernel = match (op.filter, op.colours) {
        (ResizeFilter::Bilinear, false) => "preprocess_u8",
        (ResizeFilter::Bilinear, true) => "preprocess_colours_u8",
        (ResizeFilter::Pil, false) => "preprocess_pil_u8",
        (ResizeFilter::Pil, true) => "preprocess_pil_colours_u8",
    };
    let launch = args.inputs.iter().fold(Launch::new(kernel, grid), |l, input| l.arg(input.read()));
    vec![launch.arg(x.write()).arg(transform)]
}
