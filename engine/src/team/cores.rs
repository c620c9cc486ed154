//! The number of cores for one of several ranks on a machine.

use std::thread::available_parallelism;

/// Number of cores for this process: the machine's cores divided by `local_ranks`, but at most the
/// cores that the process is bound to.
pub(crate) fn own_cores(local_ranks: usize) -> usize {
    let bound = available_parallelism().map_or(1, |n| n.get());
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    share(info.lines().filter(|line| line.starts_with("processor")).count(), bound, local_ranks)
}

/// Divides all cores of the machine, not the cores that a launcher has bound this process to, which
/// may already be its share.
fn share(cores: usize, bound: usize, local_ranks: usize) -> usize {
    if local_ranks == 1 { bound } else { (cores / local_ranks).clamp(1, bound) }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn rank_gets_its_share_of_cores_if_bound_or_unbound() {
        for (machine, bound, local_ranks, own) in [
            // First srun --cpus-per-task=12, then mpirun --bind-to none.
            (96, 12, 8, 12),
            (96, 96, 8, 12),
            // mpirun's default binding, more ranks than cores, a container's quota, a single rank.
            (96, 1, 2, 1),
            (2, 2, 4, 1),
            (96, 8, 8, 8),
            (96, 12, 1, 12),
        ] {
            let of = format!("{local_ranks} ranks on {machine} cores, bound to {bound}");
            assert_eq!(share(machine, bound, local_ranks), own, "{of}");
        }
    }
}
