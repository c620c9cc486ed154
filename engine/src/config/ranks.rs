//! `[ranks]`: runs of several processes.

use configs::table;

table! {
    /// `[ranks]`: how the processes of a run work together. None of it changes what a step means.
    pub struct RanksConfig {
        /// Size of the gradient buckets that are all-reduced together on GPUs. Smaller buckets
        /// start earlier, larger ones use the network better. Default 50.
        #[key(range = 1..=4096, unit = "MiB", resume = Free, mlperf = Free)]
        pub bucket_mib: usize = 50,
        /// Time within which a run ends after one of its ranks is lost. Default 10.
        #[key(range = 2..=86_400, unit = "seconds", resume = Free, mlperf = Free)]
        pub timeout_seconds: u64 = 10,
        /// Time without progress after which a rank is considered hanging, and the run ends; must
        /// be longer than any step and than reading the data. Default 1800; 0 is never.
        #[key(range = 0..=1_000_000, unit = "seconds", resume = Free, mlperf = Free)]
        pub stall_seconds: u64 = 1800,
        /// Time within which all ranks must join the run. Default 300.
        #[key(range = 1..=86_400, unit = "seconds", resume = Free, mlperf = Free)]
        pub join_timeout_seconds: u64 = 300,
        /// Let NCCL use NVLink SHARP, which reduces in the switch; runs are then not bit-identical.
        /// Default false.
        #[key(resume = Free, mlperf = Free)]
        pub nvls: bool = false,
        /// Allow GPUs of different models, at the speed of the slowest; results then depend on
        /// which rank has which GPU. Default false: they are rejected.
        #[key(resume = Free, mlperf = Free)]
        pub mixed_gpus: bool = false,
    }
}
