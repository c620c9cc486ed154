//! The network between GPUs, and a formula for the time of an all-reduce over it.

use clap::Args;
use serde::Serialize;

/// Fixed cost of a collective: kernel start and synchronization of its channels. NCCL's `baseLat`
/// for rings is 8.4 us; the rest is the launch of a graph node.
const START_US: f64 = 10.0;

#[derive(Debug, Clone, Copy, Args, Serialize)]
pub(super) struct Network {
    /// GB/s of a large all-reduce: the bus bandwidth reported by nccl-tests. The default is an
    /// estimate for NVLink 4: 77 % of the data sheet's rate, the fraction measured on NVLink 3
    /// (NVIDIA/nccl issue 527).
    #[arg(long = "network-gb-s", value_name = "GB/S", default_value_t = 345.0)]
    pub(super) gb_per_s: f64,
    /// Latency from one GPU to the next. The default is NCCL's constant for rings over NVLink.
    #[arg(long, value_name = "US", default_value_t = 3.4)]
    pub(super) hop_us: f64,
}

impl Network {
    /// Milliseconds of an all-reduce, by ring or by double binary tree, whichever is faster: NCCL
    /// chooses this one.
    pub(super) fn all_reduce_ms(&self, gpus: usize, bytes: usize) -> f64 {
        if gpus <= 1 {
            return 0.0;
        }
        let (gpus, us) = (gpus as f64, bytes as f64 / self.gb_per_s / 1e3);
        let ring = 2.0 * (gpus - 1.0) * self.hop_us + 2.0 * (gpus - 1.0) / gpus * us;
        let tree = 2.0 * gpus.log2().ceil() * self.hop_us + 2.0 * us;
        (START_US + ring.min(tree)) / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reduce_time_matches_hand_computed_values() {
        let network = Network { gb_per_s: 200.0, hop_us: 2.0 };
        let takes = |gpus: usize, bytes: usize, ms: f64| {
            let found = network.all_reduce_ms(gpus, bytes);
            assert!((found - ms).abs() < 1e-9, "{bytes} bytes over {gpus} GPUs: {found}");
        };
        takes(1, 8_000_000, 0.0);
        // A ring: 14 hops of 2 us, 7/4 of 80 MB at 200 GB/s = 700 us, 10 us to start.
        takes(8, 80_000_000, 0.738);
        // A tree: 10 hops of 2 us, 16 MB at 200 GB/s = 80 us.
        takes(32, 8_000_000, 0.110);
    }
}
