//! The GPU of each rank on a machine.

use super::Installed;
use crate::DeviceError;

/// The GPU number of rank `local_rank` of `local_ranks` on its machine: `local_rank`, or 0 if
/// `CUDA_VISIBLE_DEVICES` makes a single GPU visible to each rank. If there are fewer GPUs than
/// ranks, and `NCCL_MULTI_RANK_GPU_ENABLE` is 1, which lets ranks share a GPU in NCCL 2.30, ranks
/// are assigned round-robin.
///
/// # Errors
/// A one-line message: [`DeviceError::Absent`] if there is no driver or no GPU,
/// [`DeviceError::Driver`] if there are fewer GPUs than ranks.
pub fn ordinal_of(local_rank: usize, local_ranks: usize) -> Result<usize, DeviceError> {
    let gpus = Installed::find()?.gpus.len();
    let chosen = std::env::var_os("CUDA_VISIBLE_DEVICES").is_some();
    let shared = std::env::var(SHARED).is_ok_and(|value| value == "1");
    choose(local_rank, local_ranks, gpus, chosen, shared)
}

/// The NCCL variable that allows several ranks on one GPU.
const SHARED: &str = "NCCL_MULTI_RANK_GPU_ENABLE";

fn choose(
    local_rank: usize,
    local_ranks: usize,
    gpus: usize,
    chosen: bool,
    shared: bool,
) -> Result<usize, DeviceError> {
    assert!(local_rank < local_ranks, "rank {local_rank} of {local_ranks} on this machine");
    match gpus {
        _ if gpus >= local_ranks => Ok(local_rank),
        1 if chosen => Ok(0),
        1.. if shared => Ok(local_rank % gpus),
        _ => {
            let there = if gpus == 1 { "1 is".into() } else { format!("{gpus} are") };
            let from = if chosen { " in CUDA_VISIBLE_DEVICES" } else { "" };
            let reason = format!(
                "{local_ranks} ranks on this machine need a GPU each, and {there} visible{from}; \
                 start fewer ranks, or set CUDA_VISIBLE_DEVICES to one GPU for each rank"
            );
            Err(match gpus {
                0 => DeviceError::Absent(reason),
                // Not `Absent`, which would silently run all ranks on the CPU.
                _ => DeviceError::Driver { call: "choosing a GPU".into(), reason },
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn rank_uses_gpu_with_its_local_index() {
        for rank in 0..4 {
            assert_eq!(choose(rank, 4, 4, false, false), Ok(rank));
            assert_eq!(choose(rank, 4, 8, true, true), Ok(rank));
        }
    }

    #[test]
    fn rank_with_one_visible_gpu_uses_it() {
        assert_eq!(choose(3, 4, 1, true, false), Ok(0));
        assert_eq!(choose(0, 1, 1, false, false), Ok(0));
    }

    #[test]
    fn ranks_share_gpus_if_nccl_allows_it() {
        assert_eq!([0, 1].map(|rank| choose(rank, 2, 1, false, true)), [Ok(0), Ok(0)]);
        assert_eq!([1, 2, 3].map(|rank| choose(rank, 4, 2, true, true)), [Ok(1), Ok(0), Ok(1)]);
        assert!(choose(0, 2, 0, false, true).is_err(), "no GPU to share");
    }

    #[test]
    fn more_ranks_than_gpus_prints_one_line_error() {
        let said =
            |gpus, chosen| choose(1, 4, gpus, chosen, false).expect_err("too few").to_string();
        let rest = "; start fewer ranks, or set CUDA_VISIBLE_DEVICES to one GPU for each rank";
        let need = "4 ranks on this machine need a GPU each, and ";
        // With too few GPUs, a run must not silently fall back to the CPU.
        let call = "choosing a GPU: ";
        assert_eq!(said(1, false), format!("{call}{need}1 is visible{rest}"));
        let named = format!("{call}{need}2 are visible in CUDA_VISIBLE_DEVICES{rest}");
        assert_eq!(said(2, true), named);
        assert_eq!(said(0, false), format!("{need}0 are visible{rest}"));
    }
}
