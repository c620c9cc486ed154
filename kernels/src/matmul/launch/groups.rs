//! Grouped convolutions: groups are merged into tiles of 64 channels and filters, and filters get
//! zeros for the channels of other groups. Cost: the filters are copied once, and with groups of 4
//! channels a GEMM multiplies 15 zeros for each value; with groups of 64 channels, none.

use device::{Access, Arg, Buffer, Gpu, Launch, LaunchArgs, StructArg};

use super::CHUNK;
use crate::matmul::ConvShape;
use crate::{DType, Role};

/// Channels and filters per tile of the kernels for groups.
const TILE: usize = 64;

impl ConvShape {
    /// The convolution that kernels compute, with merged groups.
    pub(crate) fn on_gpu(self) -> Self {
        self.merged(TILE)
    }

    /// True if only the kernels of `conv2d_grouped.cu` support it.
    pub(super) fn is_grouped(&self) -> bool {
        self.groups > 1 || self.dilation > 1
    }

    /// True if groups are merged, so that filters are copied with zeros in between.
    fn is_widened(&self) -> bool {
        self.groups != self.on_gpu().groups
    }
}

/// The kernels' `struct GroupsTogether`.
fn arg(s: &ConvShape) -> Arg {
    let (rows, taps, wide) = (s.filters, s.kernel_h * s.kernel_w, s.on_gpu().group_channels());
    let fields = [rows, taps, s.group_filters(), s.group_channels(), wide];
    StructArg::new().field(fields.map(|field| field as i32)).arg()
}

/// Bytes of a copy of the filters, or of their gradient, in the layout of merged groups; 0 if no
/// groups are merged.
pub(super) fn copy_bytes(gpu: &Gpu, s: &ConvShape, role: Role) -> usize {
    if !s.is_widened() {
        return 0;
    }
    let elements = s.filters * s.on_gpu().filter_len();
    (elements * role.gpu_dtype(gpu.precision).size_bytes()).next_multiple_of(256)
}

/// Bytes of the copy of a GEMM's filters at the start of its workspace, multiplied by a scale or
/// with merged groups; 0 if the GEMM reads `w` itself.
pub(super) fn filter_bytes(gpu: &Gpu, s: &ConvShape, scaled: bool) -> usize {
    match copy_bytes(gpu, s, Role::Weight) {
        0 if scaled => {
            let elements = s.filters * s.filter_len();
            let bytes = elements * Role::Weight.gpu_dtype(gpu.precision).size_bytes();
            bytes.next_multiple_of(256)
        }
        bytes => bytes,
    }
}

/// The filters that a GEMM reads, and the launch that computes them from `w`.
pub(super) fn filters(
    args: &LaunchArgs<'_>,
    s: &ConvShape,
    w: Buffer<'_>,
    scale: Option<Buffer<'_>>,
) -> (Arg, Option<Launch>) {
    let bytes = filter_bytes(args.gpu, s, scale.is_some());
    if bytes == 0 {
        return (w.read(), None);
    }
    let copy = |access| args.workspace.piece(0, bytes, access);
    let launch = if s.is_widened() {
        let wide = s.on_gpu();
        let chunks = wide.group_channels().div_ceil(CHUNK);
        Launch::over("conv2d_expand_groups_f16", s.filters * s.kernel_h * s.kernel_w * chunks)
            .arg(w.read())
            .arg(super::read(scale))
            .arg(copy(Access::Write))
            .arg(arg(s))
    } else {
        Launch::over("conv2d_scale_weights_f16", s.filters * s.filter_len().div_ceil(CHUNK))
            .arg(w.read())
            .arg(super::read(scale))
            .arg(copy(Access::Write))
            .int(s.filters)
            .int(s.filter_len())
    };
    (copy(Access::Read), Some(launch))
}

/// The filter gradient that a GEMM writes: `dw`, or with merged groups the start of the workspace;
/// and the launch that then writes `dw`.
pub(super) fn gradient(
    args: &LaunchArgs<'_>,
    s: &ConvShape,
    dw: Buffer<'_>,
) -> (Arg, Option<Launch>) {
    assert_eq!(dw.dtype(), DType::F32, "{:?} in a GEMM", dw.desc);
    let bytes = copy_bytes(args.gpu, s, Role::WeightGradient);
    if bytes == 0 {
        return (dw.write(), None);
    }
    let copy = |access| args.workspace.piece(0, bytes, access);
    let collect = Launch::over("conv2d_collect_groups_f32", s.filters * s.filter_len())
        .arg(copy(Access::Read))
        .arg(dw.write())
        .arg(arg(s));
    (copy(Access::Write), Some(collect))
}
