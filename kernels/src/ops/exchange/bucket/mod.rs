//! Weight gradients packed into one tensor, so that one all-reduce sums many gradients.
//!
//! [`FillBucket`]. Tensors: `grad_i` (f32 on CUDA too, any shape, n >= 0 of them, in) -> `bucket
//! [total]` (Role::Gradient, overwritten): every element times `scale`, gradients in the order of
//! the inputs, without gaps. With `scale` = 1 / ranks the all-reduce gives the mean, and scaling
//! before the sum reduces the risk of overflow.
//!
//! [`EmptyBucket`]. Tensors: `bucket [total]` (Role::Gradient, in) -> `grad_i`
//! (Role::WeightGradient, of the shapes given, overwritten): the elements in the same order.
//!
//! Edge cases: gradients without elements use no space. On CUDA the bucket is fp16: a value beyond
//! its range becomes infinite, and stays infinite or becomes NaN in the sum; the step is then
//! skipped, because `grad_norms` finds non-finite gradients. Numerics: multiplied in f32, rounded
//! once. Memory-bound: 6 bytes per element in each op.

mod cases;

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg, Touch};

use crate::cpu::CpuArgs;
use crate::many_tensors::{column, first_blocks};
use crate::{Cost, DType, Op, OpError, Role, TensorDesc, Traits, check};

pub use cases::cases;

/// Gradients times a scale, concatenated in one tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FillBucket {
    /// Scale of every element.
    pub scale: f32,
}

/// Unpacks the gradients of a bucket into separate tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptyBucket {
    /// Shape of each gradient, in their order in the bucket.
    pub shapes: Vec<Vec<usize>>,
}

const FILL: &str = "fill_bucket";
const EMPTY: &str = "empty_bucket";

impl Op for FillBucket {
    fn name(&self) -> &'static str {
        FILL
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(FILL, "updates", updates, 0)?;
        check::parameter(FILL, "scale", self.scale.is_finite(), "finite", self.scale)?;
        for grad in inputs {
            check::dtype(FILL, "grad_i", grad, DType::F32)?;
            let wide = !grad.role.follows_precision();
            let got = format!("{:?}", grad.role);
            check::parameter(FILL, "role of grad_i", wide, "one that is f32 on CUDA", got)?;
        }
        let total = inputs.iter().map(TensorDesc::len).sum();
        Ok(vec![TensorDesc::new(Role::Gradient, &[total])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, outputs[0].len() as u64)
    }

    fn traits(&self) -> Traits {
        Traits { communicates: true, ..Traits::default() }
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let bucket = args.outputs[0];
        let launch = |part: Part| {
            Launch::new("fill_bucket", [part.blocks, 1, 1])
                .arg(part.gradients)
                .arg(part.bucket)
                .arg(self.scale)
        };
        parts(&args.inputs, Buffer::read, bucket, Access::Write).map(launch).collect()
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let values = args.inputs.iter().flat_map(|grad| grad.f32());
        for (to, value) in args.outputs[0].f32().iter_mut().zip(values) {
            *to = value * self.scale;
        }
    }
}

impl Op for EmptyBucket {
    fn name(&self) -> &'static str {
        EMPTY
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(EMPTY, "inputs", inputs, 1)?;
        check::arity(EMPTY, "updates", updates, 0)?;
        let grad = |shape: &Vec<usize>| TensorDesc::new(Role::WeightGradient, shape);
        let grads: Vec<TensorDesc> = self.shapes.iter().map(grad).collect();
        let total = grads.iter().map(TensorDesc::len).sum();
        check::floats(EMPTY, "bucket", &inputs[0], &[total])?;
        let role = inputs[0].role;
        let narrow = role.follows_precision();
        let got = format!("{role:?}");
        check::parameter(EMPTY, "role of bucket", narrow, "one that is fp16 on CUDA", got)?;
        Ok(grads)
    }

    fn traits(&self) -> Traits {
        Traits { communicates: true, ..Traits::default() }
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let bucket = args.inputs[0];
        let launch = |part: Part| {
            Launch::new("empty_bucket", [part.blocks, 1, 1]).arg(part.gradients).arg(part.bucket)
        };
        parts(&args.outputs, Buffer::write, bucket, Access::Read).map(launch).collect()
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let mut rest = args.inputs[0].f32();
        for grad in &mut args.outputs {
            let (values, after) = rest.split_at(grad.desc.len());
            grad.f32().copy_from_slice(values);
            rest = after;
        }
    }
}

/// Maximum gradients per launch: their argument struct must stay under 4 KiB.
const CAPACITY: usize = 64;

/// Elements per block.
const BLOCK_ELEMENTS: usize = 4096;

/// The gradients of one launch, and the part of the bucket that holds them.
struct Part {
    blocks: usize,
    gradients: Arg,
    bucket: Arg,
}

fn parts<'a>(
    gradients: &'a [Buffer<'a>],
    of: fn(&Buffer<'a>) -> Arg,
    bucket: Buffer<'a>,
    access: Access,
) -> impl Iterator<Item = Part> {
    assert!(bucket.desc.role.follows_precision(), "{:?}", bucket.desc);
    let mut from = bucket.ptr;
    gradients.chunks(CAPACITY).map(move |some| {
        let len = || some.iter().map(|gradient| gradient.len());
        let (first_block, blocks) =
            first_blocks::<CAPACITY>(len().map(|len| len.div_ceil(BLOCK_ELEMENTS)));
        let mut total = 0;
        let first = len().map(|len| {
            total += len;
            (total - len) as u64
        });
        let first = column::<_, CAPACITY>(first);
        let gradients = StructArg::new()
            .pointers(some.iter().map(of), CAPACITY)
            .field(column::<_, CAPACITY>(len().map(|len| len as u64)))
            .field(first)
            .field(first_block)
            .arg();
        let bytes = total * bucket.dtype().size_bytes();
        let bucket = Arg::Buffer(Touch { ptr: from, bytes, access });
        from += bytes as u64;
        Part { blocks, gradients, bucket }
    })
}
