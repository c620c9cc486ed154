//! `[ranks]`: runs of several processes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[ranks]`: how the processes of a run work together. None of it changes what a step means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RanksConfig {
    /// Gradients that are reduced together on GPUs. Smaller buckets start earlier, larger ones use
    /// the network better. Default 50.
    #[schemars(range(min = 1, max = 4096), extend("unit" = "MiB"))]
    pub bucket_mib: usize,
    /// Time in which a run ends after one of its ranks is lost. Default 10.
    #[schemars(range(min = 2, max = 86_400), extend("unit" = "seconds"))]
    pub timeout_seconds: u64,
    /// Time without progress after which a rank counts as hanging, and the run ends: longer than
    /// any step, and than the reading of data takes. Default 1800; 0 is never.
    #[schemars(range(min = 0, max = 1_000_000), extend("unit" = "seconds"))]
    pub stall_seconds: u64,
    /// Time in which all ranks must have joined the run. Default 300.
    #[schemars(range(min = 1, max = 86_400), extend("unit" = "seconds"))]
    pub join_timeout_seconds: u64,
    /// Let NCCL use NVLink SHARP, which sums in the switch; two runs may then differ in the last
    /// bits. Default false.
    pub nvls: bool,
    /// Let GPUs of different models train together, at the pace of the slowest; the bits of a run
    /// then depend on which rank has which. Default false: they are refused.
    pub mixed_gpus: bool,
}

impl Default for RanksConfig {
    fn default() -> Self {
        Self {
            bucket_mib: 50,
            timeout_seconds: 10,
            stall_seconds: 1800,
            join_timeout_seconds: 300,
            nvls: false,
            mixed_gpus: false,
        }
    }
}
