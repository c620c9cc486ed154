//! Publishes small results of a step to the host without a host sync.
//!
//! Tensors: n tensors of f32 or i32, any shapes (in); state, updated: `ring [rows, width]`
//! (Role::Scalar) and `ring_step [1]` i32, the number of rows written so far. No outputs. Row
//! `ring_step % rows` becomes
//!
//! `[sequence, values of all inputs in order, zeros]`
//!
//! with integers converted to f32, and `ring_step` is incremented. `sequence` is the new
//! `ring_step`, as the bit pattern of an i32: it starts at 1, so a zeroed ring holds no row.
//!
//! On CUDA the ring is in pinned host memory that the device writes and the host polls. The
//! sequence number is written last, after a system-wide fence: when the host reads the new number,
//! the complete row is visible. (A number written first, or with the values, could become visible
//! to the host before them.) A row is overwritten `rows` steps later, so the host may launch at
//! most that many steps past the last row that it has read.
//!
//! Edge cases: i32 values above 2^24 are rounded. The sequence wraps after 2^31 steps.

mod cases;

use device::{Buffer, Launch, LaunchArgs, StructArg};

use crate::cpu::CpuArgs;
use crate::{DType, Op, OpError, Precision, Role, TensorDesc, check};

pub use cases::cases;

/// Writes its inputs into a ring that the host reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish;

const NAME: &str = "publish";

/// Maximum number of inputs: the capacity of the CUDA kernel's argument.
pub const MAX_INPUTS: usize = 64;

impl Op for Publish {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let (n, most) = (inputs.len(), format!("at most {MAX_INPUTS}"));
        check::parameter(NAME, "number of inputs", n <= MAX_INPUTS, &most, n)?;
        check::arity(NAME, "updates", updates, 2)?;
        for input in inputs {
            let dtype = input.role.gpu_dtype(Precision::Fp16);
            let ok = matches!(dtype, DType::F32 | DType::I32);
            let got = format!("{dtype:?} ({:?})", input.role);
            check::parameter(NAME, "type of an input on CUDA", ok, "F32 or I32", got)?;
        }
        let ring = &updates[0];
        check::floats_ranked(NAME, "ring", ring, "[rows, width]")?;
        let (role, scalar) = (ring.role, ring.role == Role::Scalar);
        check::parameter(NAME, "role of ring", scalar, "Scalar", format!("{role:?}"))?;
        check::parameter(NAME, "rows", ring.dim(0) > 0, "at least 1", ring.dim(0))?;
        let words = 1 + inputs.iter().map(TensorDesc::len).sum::<usize>();
        let least = format!("at least {words}: the sequence number and the values");
        check::parameter(NAME, "width", ring.dim(1) >= words, &least, ring.dim(1))?;
        check::integers(NAME, "ring_step", &updates[1], &[1])?;
        Ok(vec![])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (ring, step) = (args.updates[0], args.updates[1]);
        let mut lens = [0i32; MAX_INPUTS];
        let mut is_int = [0i32; MAX_INPUTS];
        for ((input, len), is_int) in args.inputs.iter().zip(&mut lens).zip(&mut is_int) {
            // The length fits an i32, since the row holds all values and its width is passed as an
            // int below.
            *len = input.len() as i32;
            *is_int = i32::from(input.dtype() == DType::I32);
        }
        let values = StructArg::new()
            .pointers(args.inputs.iter().map(Buffer::read), MAX_INPUTS)
            .field(lens)
            .field(is_int)
            .field(args.inputs.len() as i32)
            .arg();
        vec![
            Launch::new("publish", [1, 1, 1])
                .arg(values)
                .arg(ring.update())
                .int(ring.dim(0))
                .int(ring.dim(1))
                .arg(step.update()),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let [ring, ring_step] = &mut args.updates[..] else { panic!("{NAME}: two state tensors") };
        let (rows, width) = (ring.desc.dim(0), ring.desc.dim(1));
        let step = &mut ring_step.i32()[0];
        let row = &mut ring.f32()[(*step as u32 as usize % rows) * width..][..width];
        let (sequence, values) = row.split_at_mut(1);
        let mut rest = values;
        for input in &args.inputs {
            let (place, after) = rest.split_at_mut(input.desc.len());
            match input.desc.role.cpu_dtype() {
                DType::I32 => {
                    place.iter_mut().zip(input.i32()).for_each(|(word, v)| *word = *v as f32);
                }
                _ => place.copy_from_slice(input.f32()),
            }
            rest = after;
        }
        rest.fill(0.0);
        *step = step.wrapping_add(1);
        sequence[0] = f32::from_bits(*step as u32);
    }
}
