//! `[ranks]`: runs of several processes.

use configs::table;

table! {
    /// `[ranks]`: how the processes of a run work together. None of it changes what a step means.
    pub struct RanksConfig {
        /// Gradients that are reduced together on GPUs. Smaller buckets start earlier, larger ones
        /// use the network better. Default 50.
        #[key(range = 1..=4096, unit = "MiB", resume = Free, mlperf = Free)]
        pub bucket_mib: usize = 50,
        /// Time in which a run ends after one of its ranks is lost. Default 10.
        #[key(range = 2..=86_400, unit = "seconds", resume = Free, mlperf = Free)]
        pub timeout_seconds: u64 = 10,
        /// Time without progress after which a rank counts as hanging, and the run ends: longer
        /// than any step, and than the reading of data takes. Default 1800; 0 is never.
        #[key(range = 0..=1_000_000, unit = "seconds", resume = Free, mlperf = Free)]
        pub stall_seconds: u64 = 1800,
        /// Time in which all ranks must have joined the run. Default 300.
        #[key(range = 1..=86_400, unit = "seconds", resume = Free, mlperf = Free)]
        pub join_timeout_seconds: u64 = 300,
        /// Let NCCL use NVLink SHARP, which sums in the switch; two runs may then differ in the
        /// last bits. Default false.
        #[key(resume = Free, mlperf = Free)]
        pub nvls: bool = false,
        /// Let GPUs of different models train together, at the pace of the slowest; the bits of a
        /// run then depend on which rank has which. Default false: they are refused.
        #[key(resume = Free, mlperf = Free)]
        pub mixed_gpus: bool = false,
    }
}
