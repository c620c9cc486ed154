//! Values to be all-reduced for the log: each loss times a weight, and a request to stop.
//!
//! Tensors: `loss_i [1]` for each of n losses, `weight [1]`, `stop [1]` (f32, in) -> `y [n+1]`
//! (Role::Loss, overwritten): `weight * loss_i` in order, then `stop`. If the weights of all ranks
//! and micro-steps sum to 1, the sum of `y` over ranks and micro-steps holds the mean losses and
//! the number of stop requests.
//!
//! Edge cases: a non-finite loss stays non-finite, and becomes NaN with a weight of 0. Numerics:
//! f32, rounded once.

mod cases;

use device::{Buffer, Launch, LaunchArgs, StructArg};

use crate::cpu::CpuArgs;
use crate::{DType, Op, OpError, Role, TensorDesc, check};

pub use cases::cases;

/// `y = [weight * loss_0, weight * loss_1, .., stop]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightedLosses;

const NAME: &str = "weighted_losses";

/// Maximum number of losses: the capacity of the CUDA kernel's argument.
pub const MAX_LOSSES: usize = 64;

impl Op for WeightedLosses {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::at_least(NAME, "inputs", inputs, 2, "losses, `weight` and `stop`")?;
        check::arity(NAME, "updates", updates, 0)?;
        let (n, most) = (inputs.len() - 2, format!("at most {MAX_LOSSES}"));
        check::parameter(NAME, "number of losses", n <= MAX_LOSSES, &most, n)?;
        for (i, input) in inputs.iter().enumerate() {
            let tensor = ["loss_i", "weight", "stop"][(i + 1).saturating_sub(n)];
            check::floats(NAME, tensor, input, &[1])?;
            let wide = !input.role.follows_precision() && input.role.cpu_dtype() == DType::F32;
            let got = format!("{tensor} of {:?}", input.role);
            check::parameter(NAME, "role of an input", wide, "one that is f32 on CUDA", got)?;
        }
        Ok(vec![TensorDesc::new(Role::Loss, &[n + 1])])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let [losses @ .., weight, stop] = &args.inputs[..] else {
            panic!("weighted_losses: weight and stop")
        };
        let pointers = StructArg::new().pointers(losses.iter().map(Buffer::read), MAX_LOSSES);
        vec![
            Launch::new("weighted_losses", [1, 1, 1])
                .block(MAX_LOSSES as u32)
                .arg(pointers.arg())
                .int(losses.len())
                .reads([weight, stop])
                .arg(args.outputs[0].write()),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let values: Vec<f32> = args.inputs.iter().map(|input| input.f32()[0]).collect();
        let [losses @ .., weight, stop] = &values[..] else { panic!("{NAME}: weight and stop") };
        let y = args.outputs[0].f32();
        y.iter_mut().zip(losses).for_each(|(y, loss)| *y = weight * loss);
        y[losses.len()] = *stop;
    }
}
