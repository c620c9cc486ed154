//! Runs this process as one rank: joins the other ranks, opens the device, and ends together with
//! them.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::config::Config;
use dali::plain;
use device::cuda::{CudaDevice, NcclOptions, nccl_id, nccl_variables, ordinal_of};
use device::{Device, DeviceError, Gpu, Ranks};
use ranks::{Group, JoinOptions, Launch, Lost, RanksError};

use super::device::DeviceArgs;
use super::exit;
use crate::EngineError;
use crate::gpu;
use crate::progress::Progress;
use crate::runtime::Backend;
use crate::team::{Team, own_cores};
use crate::train::Outcome;

/// Joins the other ranks. The group has one process if no launcher started more.
///
/// # Errors
/// [`EngineError::Usage`] if the other ranks do not join in time.
pub(super) fn join(
    launch: &Launch,
    config: &Config,
    progress: Progress,
) -> Result<Group, EngineError> {
    if launch.ranks == 1 {
        return Ok(Group::single());
    }
    end_with_parent();
    let ranks = &config.ranks;
    let timeout = Duration::from_secs(ranks.timeout_seconds);
    let options = JoinOptions {
        join_timeout: Duration::from_secs(ranks.join_timeout_seconds),
        timeout: timeout.mul_f64(NOTICED),
        say: Arc::new(move |line| progress.say(line)),
        ..JoinOptions::default()
    };
    let Launch { rank, ranks, launcher, .. } = launch;
    progress.say(&format!("rank {rank} of {ranks} ({launcher}): waiting for the others"));
    let group = Group::join(launch, options)?;
    let (rank, grace) = (*rank, grace(config));
    group.on_loss(Box::new(move |lost| end_after(lost, rank, grace)));
    Ok(group)
}

/// Fraction of `ranks.timeout_seconds` within which the loss of a rank is detected.
const NOTICED: f64 = 0.7;
/// Fraction of `ranks.timeout_seconds` within which the surviving ranks should then end by
/// themselves; after that, each process exits at once.
const GRACE: f64 = 0.15;

fn grace(config: &Config) -> Duration {
    Duration::from_secs(config.ranks.timeout_seconds).mul_f64(GRACE)
}

/// True once this process has printed which rank was lost.
static IS_LOSS_TOLD: AtomicBool = AtomicBool::new(false);

/// Fraction of the grace period that passes before the lost rank is reported: meanwhile the current
/// step may fail with a more specific message. It must be small, since a launcher kills all ranks
/// one second after the first has ended.
const UNTOLD: f64 = 0.2;

/// Reports the lost rank, then ends the process after the grace period, since it may hang in a
/// collective that waits for that rank.
fn end_after(lost: &Lost, rank: usize, grace: Duration) {
    std::thread::sleep(grace.mul_f64(UNTOLD));
    if !IS_LOSS_TOLD.swap(true, Ordering::SeqCst) {
        Progress::of_rank(rank).say(&format!("error: {}", lost_rank_message(lost)));
    }
    std::thread::sleep(grace.mul_f64(1.0 - UNTOLD));
    end_now(exit::of_survivor(lost.code));
}

/// Removes incomplete files and ends the process.
fn end_now(code: u8) {
    dali::unfinished::remove_all_and(|| signal_hook::low_level::exit(i32::from(code)));
}

fn lost_rank_message(lost: &Lost) -> String {
    EngineError::from(RanksError::Lost(Box::new(lost.clone()))).to_string()
}

/// Opens this rank's device, and connects it to the devices of the other ranks (NCCL).
///
/// # Errors
/// As for [`DeviceArgs::open`]; ranks with different devices; NCCL missing or failing.
pub(super) fn open(
    device: &DeviceArgs,
    launch: &Launch,
    group: &Group,
    config: &Config,
) -> Result<Backend, EngineError> {
    if launch.ranks == 1 {
        return device.open();
    }
    let opened = device.open_with(|| {
        let ordinal = ordinal_of(launch.local_rank, launch.local_ranks)?;
        Ok(gpu::open(ordinal, super::device::notice)?)
    })?;
    let gpu = opened.as_ref().map(|cuda| (cuda.name(), cuda.gpu()));
    group.agree(&facts_of_device(gpu, config.ranks.mixed_gpus))?;
    let Some(cuda) = opened else { return Ok(Backend::Cpu) };
    let cuda = Arc::new(cuda);
    let id = if group.is_first() { nccl_id()?.to_vec() } else { Vec::new() };
    let id = group.broadcast("the NCCL group id", &id)?;
    let Ok(id) = id.try_into() else {
        return Err(EngineError::RankLost("rank 0 sent no NCCL group id".into()));
    };
    let ranks = Ranks { rank: launch.rank, count: launch.ranks };
    join_nccl(&cuda, ranks, &id, config)?;
    let (lost, rank, grace) = (cuda.clone(), launch.rank, grace(config));
    group.on_loss(Box::new(move |loss| {
        // On a separate thread: the process must end even if the driver or NCCL hangs.
        let abort = move || drop(lost.abort());
        let _ = std::thread::Builder::new().name("abort".into()).spawn(abort);
        end_after(loss, rank, grace);
    }));
    Ok(Backend::Device(cuda))
}

/// Properties that must be equal on all ranks. The GPU model is included because plans, and thus
/// the rounding of gradients, depend on it.
fn facts_of_device(gpu: Option<(String, &Gpu)>, mixed: bool) -> Vec<(&'static str, String)> {
    let Some((name, gpu)) = gpu else { return vec![("device", "CPU".into())] };
    let mut facts = vec![("device", "GPU".to_string())];
    if !mixed {
        let (capability, sms) = (gpu.capability, gpu.multiprocessors);
        let what = "GPU (ranks.mixed_gpus=true lets different ones train together)";
        let checked = if gpu.wgmma { "" } else { ", without wgmma kernels" };
        facts.push((what, format!("{name}, {capability}, {sms} SMs{checked}")));
    }
    facts
}

/// Restarts this process if environment variables that NCCL reads are not set. They must be set
/// before NCCL is loaded.
///
/// # Errors
/// If the process cannot be restarted.
pub(super) fn with_nccl_variables(
    device: &DeviceArgs,
    launch: &Launch,
    config: &Config,
) -> Result<(), EngineError> {
    if launch.ranks == 1 || device.is_cpu() {
        return Ok(());
    }
    Ok(restart_with_nccl_variables(config)?)
}

fn restart_with_nccl_variables(config: &Config) -> Result<(), DeviceError> {
    let mut missing = nccl_variables(config.ranks.nvls);
    missing.retain(|(name, _)| std::env::var_os(name).is_none());
    if missing.is_empty() {
        return Ok(());
    }
    let fault = |e: std::io::Error| DeviceError::Driver {
        call: format!("restarting the process with {missing:?}"),
        reason: e.to_string(),
    };
    let program = std::env::current_exe().map_err(fault)?;
    let arguments = std::env::args_os().skip(1);
    Err(fault(Command::new(program).args(arguments).envs(missing.clone()).exec()))
}

/// Opens the first visible GPU as the only rank of an NCCL group, so that all-reduces run with a
/// single rank. May restart the process, so call it before anything with side effects.
///
/// # Errors
/// As for [`DeviceArgs::open`]; NCCL missing or failing.
pub fn open_gpu_in_group(config: &Config) -> Result<CudaDevice, EngineError> {
    restart_with_nccl_variables(config)?;
    let cuda = gpu::open(super::device::ORDINAL, super::device::notice)?;
    join_nccl(&cuda, Ranks::SINGLE, &nccl_id()?, config)?;
    Ok(cuda)
}

fn join_nccl(
    cuda: &CudaDevice,
    ranks: Ranks,
    id: &[u8; 128],
    config: &Config,
) -> Result<(), DeviceError> {
    let timeout = Duration::from_secs(config.ranks.join_timeout_seconds);
    cuda.join(ranks, id, &NcclOptions { nvls: config.ranks.nvls, timeout })
}

/// Runs a rank's work. If all ranks end with the same result, they exit together, since a launcher
/// may kill the others as soon as one has exited. A rank that fails sends the reason to the others.
pub(super) fn ending_together(
    group: &Group,
    run: impl FnOnce() -> Result<Outcome, EngineError>,
) -> Result<Outcome, EngineError> {
    let result = run().map_err(|fault| match group.lost() {
        // After the loss of a rank, any other error is a consequence of the loss.
        Some(lost) => RanksError::Lost(Box::new(lost)).into(),
        None => fault,
    });
    let result = match result {
        Err(fault) if !is_of_all(&fault) => Err(fault),
        result => {
            let met = group.barrier("the end of the run");
            result.and_then(|outcome| met.map(|()| outcome).map_err(EngineError::from))
        }
    };
    if group.ranks() == 1 {
        return result;
    }
    // The error is printed before this rank leaves the group: a launcher may kill it as soon as
    // another rank has exited.
    let Err(fault) = &result else {
        group.leave(None);
        return result;
    };
    print_error(fault);
    if is_of_all(fault) {
        // Waits until rank 0 has printed the error. If the barrier fails, each rank ends anyway.
        let _ = group.barrier("the error message of rank 0");
    }
    let (code, sentence) = (super::code(fault), fault.to_string());
    let agreed = is_of_all(fault) || is_loss(fault);
    group.leave((!agreed).then_some((code, sentence.as_str())));
    end_if_it_hangs(fault);
    Err(EngineError::Ranks { code })
}

/// Ends the process at once if the device hangs: the driver's exit handlers would wait for it.
pub(super) fn end_if_it_hangs(fault: &EngineError) {
    if matches!(fault, EngineError::Hangs(_)) {
        end_now(super::code(fault));
    }
}

/// True if all ranks fail with this error at the same point.
fn is_of_all(fault: &EngineError) -> bool {
    matches!(fault, EngineError::Diverged { .. } | EngineError::OfAllRanks(_))
}

/// True if the failure of another rank caused the error.
fn is_loss(fault: &EngineError) -> bool {
    matches!(fault, EngineError::RankLost(_) | EngineError::RankFailed { .. })
}

/// Ends all ranks if training on this rank hangs.
pub(super) fn watch(team: &Team, config: &Config) {
    let limit = Duration::from_secs(config.ranks.stall_seconds);
    if team.is_alone() || limit.is_zero() {
        return;
    }
    // The closure must not hold `team`: the watch ends when `team` is dropped.
    let (rank, group) = (team.ranks().rank, team.group().clone());
    team.watch(limit, move |sentence| {
        Progress::of_rank(rank).say(&format!("error: {sentence}"));
        group.leave(Some((exit::RANK_LOST, sentence)));
        end_now(exit::RANK_LOST);
    });
}

/// Prints the error of a command. With several ranks, the message names the rank; an error that is
/// common to all ranks is printed only by rank 0.
pub(super) fn print_error(error: &EngineError) {
    let launch = Launch::from_env().unwrap_or_else(|_| Launch::single());
    let progress = match (error, launch.ranks, launch.rank) {
        // These errors have already been printed, by this rank or by rank 0.
        (EngineError::Ranks { .. }, ..) => return,
        (fault, ..) if is_loss(fault) && IS_LOSS_TOLD.swap(true, Ordering::SeqCst) => {
            return;
        }
        (fault, _, 1..) if is_of_all(fault) => return,
        (_, 1, _) => Progress::loud(),
        (_, _, rank) => Progress::of_rank(rank),
    };
    let text = match error {
        // These messages stay on one line even if a file name contains a line break. Others may
        // contain a table or lines of a config.
        EngineError::Io { .. }
        | EngineError::Data(_)
        | EngineError::Image { .. }
        | EngineError::Score(_) => plain(&error.to_string()),
        other => other.to_string(),
    };
    progress.say(&format!("error: {text}"));
}

/// Number of threads of this rank: its share of the machine's cores, and at most the cores that it
/// is bound to.
pub(super) fn threads_of_rank() -> usize {
    own_cores(Launch::from_env().map_or(1, |launch| launch.local_ranks))
}

/// Environment variable with the id of the process that started the ranks (`--ranks`).
pub(super) const PARENT: &str = "ONEGRAPH_PARENT_PID";

/// Ends this rank if the process that started all ranks is gone.
fn end_with_parent() {
    let parent = std::env::var(PARENT).ok().and_then(|pid| pid.parse::<i32>().ok());
    let Some(parent) = parent else { return };
    let is_gone = move || rustix::process::getppid().is_none_or(|pid| pid.as_raw_pid() != parent);
    let watch = move || {
        while !is_gone() {
            std::thread::sleep(Duration::from_secs(1));
        }
        Progress::loud().say("error: the process that started this rank has ended");
        end_now(exit::RANK_LOST);
    };
    // If the thread cannot be started, the rank outlives its parent.
    let _ = std::thread::Builder::new().name("parent".into()).spawn(watch);
}

pub(super) fn cannot_start(fault: std::io::Error) -> EngineError {
    EngineError::Usage(format!("a rank cannot be started: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_gpu_models_are_rejected_unless_allowed() {
        let gpu = |name: &str| Gpu::named(name).unwrap();
        let (a100, h100) = (gpu("a100"), gpu("h100"));
        let facts = |gpu: &Gpu, mixed| facts_of_device(Some((gpu.name.clone(), gpu)), mixed);
        assert_eq!(facts(&h100, false), facts(&h100, false));
        let [(_, old), (_, new)] = [&a100, &h100].map(|gpu| facts(gpu, false).remove(1));
        assert_eq!([old, new], ["A100, 8.0, 108 SMs", "H100, 9.0, 132 SMs"]);
        assert_eq!(facts(&a100, true), facts(&h100, true));
        assert_ne!(facts(&a100, true), facts_of_device(None, true));
    }

    #[test]
    fn surviving_rank_exits_with_code_of_permanent_failure() {
        for (told, own) in [
            (Some(exit::BAD_DATA), exit::BAD_DATA),
            (Some(exit::BAD_CONFIG), exit::BAD_CONFIG),
            (Some(exit::FAILED), exit::FAILED),
            // A restart may get another GPU, and continues from the checkpoint.
            (Some(exit::NO_DEVICE), exit::RANK_LOST),
            (Some(exit::INTERRUPTED), exit::RANK_LOST),
            (None, exit::RANK_LOST),
        ] {
            assert_eq!(exit::of_survivor(told), own, "{told:?}");
        }
    }
}
