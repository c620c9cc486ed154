//! The CUDA launch of `rpn_head`: tiles of rows of all levels.

use device::{Arg, Launch, LaunchArgs, StructArg};

use super::{MAX_LEVELS, RpnHeadInputs, conv_shape};
use crate::matmul::ConvShape;
use crate::matmul::launch;

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let RpnHeadInputs { conv: [w, b], logits, deltas, maps } = RpnHeadInputs::of(&args.inputs);
    let shapes: Vec<ConvShape> =
        maps.iter().map(|map| conv_shape(map.desc, b.desc.len())).collect();
    let (launch, first_tiles) = launch::rpn_head(args.gpu, &shapes);
    let outputs: Vec<Arg> = args.outputs.iter().map(|output| output.write()).collect();
    let (logits_out, deltas_out) = outputs.split_at(maps.len());
    let int = |v: usize| i32::try_from(v).expect("an extent that fits an int");
    let of_levels = |value: &dyn Fn(usize) -> usize| -> [i32; MAX_LEVELS] {
        std::array::from_fn(|l| if l < shapes.len() { int(value(l)) } else { 0 })
    };
    let maps: Vec<Arg> = maps.iter().map(|map| map.read()).collect();
    let ConvShape { images, channels, filters, .. } = shapes[0];
    let anchors = logits[1].desc.len();
    let levels = StructArg::new()
        .pointers(&maps, MAX_LEVELS)
        .pointers(logits_out, MAX_LEVELS)
        .pointers(deltas_out, MAX_LEVELS)
        .field(of_levels(&|l| shapes[l].height))
        .field(of_levels(&|l| shapes[l].width))
        .field(of_levels(&|l| first_tiles[l]))
        .field([shapes.len(), images, channels, filters].map(int))
        .field(int(anchors));
    let launch = launch.arg(levels.arg()).arg(w.read()).arg(b.read());
    vec![[logits, deltas].iter().flatten().fold(launch, |launch, t| launch.arg(t.read()))]
}
