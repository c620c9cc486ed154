//! Which images of a batch are mirrored.
//!
//! Tensors: `image_keys` (`[N, 4]`, i32, see [`crate::philox::keyed`]) -> `flips` (`[N]`, i32,
//! 1 = mirrored, overwritten). A pure function of seed, image and epoch.
//! Edges: probability 0 flips none, 1 flips all.

mod cases;
mod cuda;

use device::{Launch, LaunchArgs};

use crate::check;
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::philox::{Purpose, keyed};
use crate::{Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Mirrors an image if its random word is below `probability * 2^32`.
#[derive(Debug, Clone, PartialEq)]
pub struct DecideFlips {
    /// Seed of the run.
    pub seed: u64,
    /// Chance of a flip, 0 to 1.
    pub probability: f32,
}

const NAME: &str = "decide_flips";

impl DecideFlips {
    /// Words below this flip: in f64 exact, and beyond every word at probability 1.
    fn bound(&self) -> f64 {
        f64::from(self.probability) * 2f64.powi(32)
    }
}

impl Op for DecideFlips {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let ok = (0.0..=1.0).contains(&self.probability);
        check::parameter(NAME, "probability", ok, "within 0..=1", self.probability)?;
        let mut dims = Dims::new(NAME, inputs, 1, updates)?;
        dims.i32("image_keys", &inputs[0], "[N, 4]")?;
        Ok(vec![TensorDesc::new(Role::Index, &[dims.get("N")])])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let bound = self.bound();
        let keys = args.inputs[0].i32().chunks_exact(4);
        for (flip, key) in args.outputs[0].i32().iter_mut().zip(keys) {
            let word = keyed(self.seed, key, Purpose::Flip, 0);
            *flip = i32::from(f64::from(word) < bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DecideFlips;
    use crate::case::boxes::image_keys;
    use crate::on_cpu::run;

    fn flips(seed: u64, probability: f32, n: usize) -> Vec<i32> {
        let outputs = run(&DecideFlips { seed, probability }, &[image_keys(n)]).unwrap();
        outputs[0].as_i32().to_vec()
    }

    #[test]
    fn the_share_is_the_probability() {
        assert_eq!(flips(1, 0.0, 1000).iter().sum::<i32>(), 0);
        assert_eq!(flips(1, 1.0, 1000).iter().sum::<i32>(), 1000);
        // Four standard deviations of 10,000 draws at 0.25 are 173.
        let quarter = flips(1, 0.25, 10_000).iter().sum::<i32>();
        assert!((2327..=2673).contains(&quarter), "{quarter}");
    }

    #[test]
    fn an_image_decides_for_itself_and_a_seed_for_all() {
        let all = flips(7, 0.5, 64);
        assert_eq!(flips(7, 0.5, 13), all[..13], "the batch around an image does not matter");
        assert_ne!(flips(8, 0.5, 64), all);
    }

    #[test]
    fn more_flips_at_a_higher_chance() {
        let pairs = flips(3, 0.3, 500).into_iter().zip(flips(3, 0.6, 500));
        assert!(pairs.into_iter().all(|(low, high)| low <= high));
    }

    #[test]
    fn a_chance_beyond_one_is_refused() {
        let op = DecideFlips { seed: 0, probability: 1.5 };
        let error = run(&op, &[image_keys(1)]).unwrap_err().to_string();
        assert!(error.contains("probability") && error.contains("1.5"), "{error}");
    }
}
