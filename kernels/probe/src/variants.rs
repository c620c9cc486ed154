//! The variants: what each asks, which kernel answers, how it is launched and what it must match.

use device::{Access, Arg, DevicePtr, Launch, StructArg, Touch};

use crate::descriptor::{Layout, hopper_operand};
use crate::shapes::Shape;

/// How a variant's output must compare with the baseline's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// The same bits: it sums in the same order.
    Bits,
    /// The same bits for kernels of one tap; else the order of taps and channels differs.
    BitsOfOneTap,
    /// Within rounding: other instructions, which sum in an order of their own.
    Rounding,
}

/// A kernel for the forward convolution in tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// How the command line names it.
    pub name: &'static str,
    /// Its kernel: of `ptx/` for the baseline, else of `kernels/probe/ptx`.
    pub kernel: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// Rows and columns of a tile.
    pub tile: [usize; 2],
    /// Values of k in a stage.
    pub depth: usize,
    /// Stages in shared memory.
    pub stages: usize,
    /// Runs on H100 and H200 alone.
    pub hopper: bool,
    /// What it must match.
    pub matches: Match,
}

const TODAY: Variant = Variant {
    name: "baseline",
    kernel: "conv2d_f16_large",
    question: "today's loop, as training runs it",
    tile: [128, 128],
    depth: 32,
    stages: 4,
    hopper: false,
    matches: Match::Bits,
};

/// The first is the baseline, the second a control: the variants' own frame with no switch turned.
pub const VARIANTS: [Variant; 9] = [
    TODAY,
    Variant {
        name: "control",
        kernel: "probe_control",
        question: "nothing: the variants' frame, which must cost what the baseline does",
        ..TODAY
    },
    Variant {
        name: "earlier",
        kernel: "probe_earlier",
        question: "what did kept addresses and a fill without a branch buy?",
        ..TODAY
    },
    Variant {
        name: "within",
        kernel: "probe_within",
        question: "does it pay to load fragments across the barrier?",
        ..TODAY
    },
    Variant {
        name: "depth64",
        kernel: "probe_depth64",
        question: "do 3 stages of 64 (whole lines, half the barriers) beat 4 of 32?",
        depth: 64,
        stages: 3,
        ..TODAY
    },
    Variant {
        name: "taps_ca",
        kernel: "probe_taps_ca",
        question: "does L1 serve the taps of a window if they follow one another?",
        matches: Match::BitsOfOneTap,
        ..TODAY
    },
    Variant {
        name: "taps_ca_128b",
        kernel: "probe_taps_ca_128b",
        question: "the same, where a miss brings the whole line into L2",
        matches: Match::BitsOfOneTap,
        ..TODAY
    },
    Variant {
        name: "wgmma_n256",
        kernel: "probe_wgmma_n256",
        question: "what does wgmma reach with today's gather and a tile of 128x256?",
        tile: [128, 256],
        depth: 64,
        stages: 4,
        hopper: true,
        matches: Match::Rounding,
    },
    Variant {
        name: "wgmma_n128",
        kernel: "probe_wgmma_n128",
        question: "the same with tile 128x128, two blocks a multiprocessor",
        tile: [128, 128],
        depth: 64,
        stages: 3,
        hopper: true,
        matches: Match::Rounding,
    },
];

/// Device addresses of a convolution's tensors.
#[derive(Debug, Clone, Copy)]
pub struct Tensors {
    /// `[N,H,W,C]` half.
    pub x: DevicePtr,
    /// `[K,R,R,C]` half.
    pub w: DevicePtr,
    /// `[K]` float, if the shape has one.
    pub scale: DevicePtr,
    /// `[K]` float.
    pub bias: Option<DevicePtr>,
    /// `[N,P,Q,K]` half, if the shape has one.
    pub residual: DevicePtr,
    /// `[N,P,Q,K]` half.
    pub y: DevicePtr,
}

impl Variant {
    /// The variant of this name.
    pub fn named(name: &str) -> Option<Self> {
        VARIANTS.iter().find(|variant| variant.name == name).copied()
    }

    /// Whether this is the kernel of training itself.
    pub fn is_baseline(&self) -> bool {
        self.kernel == TODAY.kernel
    }

    /// Whether its output on this shape must have the baseline's bits.
    pub fn same_bits(&self, shape: &Shape) -> bool {
        match self.matches {
            Match::Bits => true,
            Match::BitsOfOneTap => shape.kernel == 1,
            Match::Rounding => false,
        }
    }

    /// Tiles of the output.
    pub fn tiles(&self, shape: &Shape) -> usize {
        let [rows, columns] = self.tile;
        shape.rows().div_ceil(rows) * shape.filters.div_ceil(columns)
    }

    /// Dynamic shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        let stages = self.stages * (self.tile[0] + self.tile[1]) * self.depth * 2;
        // wgmma's swizzle counts from multiples of 1,024, dynamic memory begins at one of 128.
        stages + if self.hopper { 1024 } else { 0 }
    }

    /// Its launch. Panics if the shape's channels are no multiple of the depth: the probe's loops
    /// have no tail.
    pub fn launch(&self, shape: &Shape, tensors: &Tensors, relu: bool) -> Launch {
        let (c, depth) = (shape.channels, self.depth);
        assert!(c.is_multiple_of(depth) && shape.filters.is_multiple_of(8), "{shape:?} in {depth}");
        let [x, w, y] = shape.elements();
        let touch = |ptr, bytes, access| Arg::Buffer(Touch { ptr, bytes, access });
        let floats = |ptr| touch(ptr, 4 * shape.filters, Access::Read);
        let optional = |there: bool, arg: Arg| if there { arg } else { Arg::Null };
        let residual = touch(tensors.residual, 2 * y, Access::Read);
        let launch = Launch::new(self.kernel, [self.tiles(shape), 1, 1])
            .block(if self.hopper { 256 } else { 128 })
            .shared(self.shared_bytes())
            .arg(touch(tensors.x, 2 * x, Access::Read))
            .arg(touch(tensors.w, 2 * w, Access::Read))
            .arg(optional(shape.scale, floats(tensors.scale)))
            .arg(tensors.bias.map_or(Arg::Null, floats))
            .arg(optional(shape.residual, residual))
            .arg(Arg::Null)
            .arg(touch(tensors.y, 2 * y, Access::Write));
        // The kernel of training can also write partial sums and signs; here there are none.
        let launch = if self.is_baseline() { launch.arg(Arg::Null) } else { launch };
        let launch = launch.arg(conv_arg(shape)).arg(relu);
        match (self.hopper, self.is_baseline()) {
            (true, _) => launch.arg(hopper_operand(Layout::Swizzle128).bits()),
            (false, true) => launch.arg(Arg::Null),
            (false, false) => launch,
        }
    }
}

/// `struct Conv` of conv.cuh.
fn conv_arg(shape: &Shape) -> Arg {
    let [p, q] = shape.out();
    let fields = [
        [shape.images, shape.height, shape.width, shape.channels, shape.filters, shape.kernel],
        [shape.kernel, shape.stride, shape.pad, p, q, 0],
    ];
    let fields = fields.as_flattened().iter().take(11);
    fields.fold(StructArg::new(), |arg, &field| arg.field(field as i32)).arg()
}

#[cfg(test)]
mod tests {
    use device::{Buffer, Gpu, LaunchArgs, Precision, Workspace};
    use kernels::Role;
    use kernels::ops::conv2d::Conv2d;
    use kernels::{Op, TensorDesc};

    use super::*;
    use crate::shapes::STEP;

    /// What is called the baseline is what training launches for these shapes, to the last byte.
    #[test]
    fn the_baseline_is_the_launch_of_training() {
        for shape in STEP {
            let [p, q] = shape.out();
            let desc = |dims: &[usize], role| TensorDesc::new(role, dims);
            let y = [shape.images, p, q, shape.filters];
            let x = [shape.images, shape.height, shape.width, shape.channels];
            let w = [shape.filters, shape.kernel, shape.kernel, shape.channels];
            let mut inputs =
                vec![(desc(&x, Role::Activation), 1 << 40), (desc(&w, Role::Weight), 2 << 40)];
            if shape.scale {
                inputs.push((desc(&[shape.filters], Role::Master), 3 << 40));
            }
            inputs.push((desc(&[shape.filters], Role::Master), 4 << 40));
            if shape.residual {
                inputs.push((desc(&y, Role::Activation), 5 << 40));
            }
            let outputs = [(desc(&y, Role::Activation), 6 << 40)];
            let buffers = |list: &'static [(TensorDesc, u64)]| -> Vec<Buffer<'static>> {
                list.iter()
                    .map(|(desc, ptr)| Buffer { desc, ptr: *ptr, precision: Precision::Fp16 })
                    .collect()
            };
            let args = LaunchArgs {
                gpu: &Gpu::h100(),
                inputs: buffers(inputs.leak()),
                outputs: buffers(Box::leak(Box::new(outputs))),
                updates: vec![],
                workspace: Workspace::default(),
            };
            let op = Conv2d {
                scale: shape.scale,
                bias: true,
                residual: shape.residual,
                relu: shape.relu,
                ..Conv2d::new(shape.stride, shape.pad)
            };
            let tensors = Tensors {
                x: 1 << 40,
                w: 2 << 40,
                scale: 3 << 40,
                bias: Some(4 << 40),
                residual: 5 << 40,
                y: 6 << 40,
            };
            let ours = Variant::named("baseline").unwrap().launch(&shape, &tensors, shape.relu);
            assert_eq!(op.launches(&args), [ours], "{}", shape.name);
        }
    }

    #[test]
    fn tiles_and_shared_memory_fit_the_gpus() {
        for variant in VARIANTS {
            // What a block can ask for: 163 KiB on A100, 227 on H100 and H200.
            let most = if variant.hopper { 227 << 10 } else { 163 << 10 };
            assert!(variant.shared_bytes() <= most, "{}", variant.name);
        }
        let waves = VARIANTS[0].tiles(&Shape::named("res5_3x3").unwrap());
        assert_eq!(waves, 396);
    }
}
