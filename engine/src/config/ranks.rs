//! `[ranks]`: runs with several ranks.

use configs::table;

table! {
    /// `[ranks]`: cooperation of the ranks of a run. These keys do not change the result of a step,
    /// except by rounding.
    pub struct RanksConfig {
        /// Size of a bucket of gradients, which are all-reduced together on GPUs. Smaller buckets
        /// start earlier, larger ones use the network better. Default 50.
        #[key(range = 1..=4096, unit = "MiB", resume = Free, mlperf = Free)]
        pub bucket_mib: usize = 50,
        /// Time limit for ending the run after a rank is lost. Default 10.
        #[key(range = 2..=86_400, unit = "seconds", resume = Free, mlperf = Free)]
        pub timeout_seconds: u64 = 10,
        /// Time without progress after which a rank counts as hanging and the run ends. It must be
        /// longer than any step, and than opening the data. Default 1800; 0: never.
        #[key(range = 0..=1_000_000, unit = "seconds", resume = Free, mlperf = Free)]
        pub stall_seconds: u64 = 1800,
        /// Time limit for all ranks to join the run. Default 300.
        #[key(range = 1..=86_400, unit = "seconds", resume = Free, mlperf = Free)]
        pub join_timeout_seconds: u64 = 300,
        /// Let NCCL use NVLink SHARP, which sums in the switch. Repeated runs are then not
        /// bit-identical. Default false.
        #[key(resume = Free, mlperf = Free)]
        pub nvls: bool = false,
        /// Allow ranks with different GPU models. The slowest determines the speed, and results
        /// depend on which rank has which GPU. Default false: different models are rejected.
        #[key(resume = Free, mlperf = Free)]
        pub mixed_gpus: bool = false,
    }
}
