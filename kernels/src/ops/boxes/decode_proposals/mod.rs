//! Proposals of the selected anchors: decoded, clipped, scored.
//!
//! Matches torchvision's `RegionProposalNetwork.filter_proposals` up to its NMS: a proposal counts
//! if both sides are at least `min_size` after the clip and its score is at least
//! `score_threshold`.
//!
//! Tensors: `idx` (`[N, M]`, i32, see `top_k_per_level`), `anchors` (`[A_total, 4]`),
//! `network_sizes` (`[N, 2]`, height and width without padding), `logits_l` for each level
//! (`[N, h_l, w_l, A]`), then `deltas_l` for each level (`[N, h_l, w_l, 4A]`) -> `boxes`
//! (`[N, M, 4]`, clipped to the image), `scores` (`[N, M]`, sigmoid of the logit, or -1 for a
//! proposal that does not count); both overwritten.
//! Edges: an index that is no anchor gives a box of zeros and score -1.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check;
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Decodes the anchors that `idx` names.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodeProposals {
    /// Boxes are inclusive.
    pub plus_one: bool,
    /// Least width and height in network pixels.
    pub min_size: f32,
    /// Least score.
    pub score_threshold: f32,
    /// Factors of the four deltas.
    pub weights: [f32; 4],
}

const NAME: &str = "decode_proposals";

/// The inputs of [`DecodeProposals`].
#[derive(Debug, Clone)]
pub struct DecodeProposalsInputs<T> {
    /// Selected anchors, `[N, M]` i32.
    pub idx: T,
    /// `[A_total, 4]` f32.
    pub anchors: T,
    /// `[N, 2]` i32.
    pub network_sizes: T,
    /// A level each, `[N, h_l, w_l, A]`.
    pub logits: Vec<T>,
    /// A level each, `[N, h_l, w_l, 4A]`.
    pub deltas: Vec<T>,
}

impl<T> From<DecodeProposalsInputs<T>> for Vec<T> {
    fn from(inputs: DecodeProposalsInputs<T>) -> Self {
        let DecodeProposalsInputs { idx, anchors, network_sizes, logits, deltas } = inputs;
        [idx, anchors, network_sizes].into_iter().chain(logits).chain(deltas).collect()
    }
}

impl<'a, T> DecodeProposalsInputs<&'a T> {
    /// Names the tensors of a list. Panics if it is too short: the contract counts it first.
    fn of(list: &'a [T]) -> Self {
        let [idx, anchors, network_sizes, maps @ ..] = list else {
            panic!("{} tensors are too few for {NAME}", list.len())
        };
        let (logits, deltas) = maps.split_at(maps.len() / 2);
        let (logits, deltas) = (logits.iter().collect(), deltas.iter().collect());
        Self { idx, anchors, network_sizes, logits, deltas }
    }
}

/// Inputs before the maps.
const FIRST_MAP: usize = 3;

impl Op for DecodeProposals {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let maps = inputs.len().saturating_sub(FIRST_MAP);
        if maps == 0 || maps % 2 == 1 {
            let expected = "3 + 2 a level (at least 5)".to_string();
            return Err(OpError::Arity { op: NAME, what: "inputs", expected, got: inputs.len() });
        }
        let mut dims = Dims::new(NAME, inputs, inputs.len(), updates)?;
        let DecodeProposalsInputs { idx, anchors, network_sizes, logits, deltas } =
            DecodeProposalsInputs::of(inputs);
        dims.i32("idx", idx, "[N, M]")?;
        dims.f32("anchors", anchors, "[A_total, 4]")?;
        dims.i32("network_sizes", network_sizes, "[N, 2]")?;
        for (logits, deltas) in logits.iter().zip(deltas) {
            dims.f32("logits_l", logits, "[N, h_l, w_l, A]")?;
            let [n, h, w, a] = logits.shape[..] else {
                return Err(check::shape_error(NAME, "logits_l", logits, "[N, h, w, A]".into()));
            };
            check::shape(NAME, "deltas_l", deltas, &[n, h, w, 4 * a])?;
            dims.f32("deltas_l", deltas, "[N, h_l, w_l, a4]")?;
        }
        let total: usize = logits.iter().map(|d| d.shape[1..].iter().product::<usize>()).sum();
        check::shape(NAME, "anchors", anchors, &[total, 4])?;
        let (n, m) = (dims.get("N"), dims.get("M"));
        Ok(vec![TensorDesc::new(Role::Box, &[n, m, 4]), TensorDesc::new(Role::Score, &[n, m])])
    }

    fn cost(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Only the selected anchors of the maps are read: 5 values, an index and the anchor.
        let rows = outputs[1].len() as u64;
        Cost { flops: 40 * rows, bytes: (5 + 1 + 4 + 5) * 4 * rows }
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::decode_proposals(self, args);
    }
}
