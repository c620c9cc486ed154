//! CUDA launches of `projected`: the filters of both convolutions times their factors, and the
//! product.

use device::{Access, Arg, Launch, LaunchArgs};

use super::{CHANNEL_MULTIPLE, Projected, ProjectedInputs};
use crate::matmul::{ConvShape, launch};

/// The first launch's output for the second: filters of both in half, and sums of biases.
pub(super) struct Scratch {
    /// Bytes of each part; those of filters are multiples of 16.
    parts: [usize; 3],
}

impl Scratch {
    pub(super) fn of([own, from]: &[ConvShape; 2]) -> Self {
        let filters = |s: &ConvShape| s.filters * s.channels * size_of::<u16>();
        Self { parts: [filters(own), filters(from), own.filters * size_of::<f32>()] }
    }

    /// Bytes of all parts.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().sum()
    }

    fn part(&self, args: &LaunchArgs<'_>, i: usize, access: Access) -> Arg {
        args.workspace.piece(self.parts[..i].iter().sum(), self.parts[i], access)
    }
}

pub(super) fn launches(
    op: &Projected,
    [own, from]: &[ConvShape; 2],
    args: &LaunchArgs<'_>,
) -> Vec<Launch> {
    let inputs = ProjectedInputs::of(&args.inputs);
    let scratch = Scratch::of(&[*own, *from]);
    let chunks = (own.channels + from.channels) / CHANNEL_MULTIPLE;
    let filters = Launch::over("projected_filters_f16", own.filters * (chunks + 1))
        .arg(inputs.w.read())
        .arg(inputs.w_from.read())
        .arg(inputs.scale.read())
        .arg(inputs.scale_from.read())
        .arg(inputs.bias.read())
        .arg(inputs.bias_from.read());
    let filters = (0..3).fold(filters, |l, i| l.arg(scratch.part(args, i, Access::Write)));
    let filters = filters.int(own.filters).int(own.channels).int(from.channels);
    let part = |i| scratch.part(args, i, Access::Read);
    let product = launch::projected(args.gpu, own, from)
        .arg(inputs.x.read())
        .arg(part(0))
        .arg(inputs.from.read())
        .arg(part(1))
        .arg(part(2))
        .arg(args.outputs[0].write())
        .arg(launch::conv_arg(own))
        .arg(launch::conv_arg(from))
        .arg(op.relu)
        .arg(args.outputs.get(1).map_or(Arg::Null, |signs| signs.write()));
    vec![filters, product]
}
