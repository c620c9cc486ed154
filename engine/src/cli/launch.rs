//! This process as one rank of a run: it joins the others, opens its device, and ends with them.

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
/// [`EngineError::Usage`] if they do not join in time.
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

/// The share of the time limit in which a loss is noticed.
const NOTICED: f64 = 0.7;
/// The share that the rank then has to end by itself.
const GRACE: f64 = 0.15;

fn grace(config: &Config) -> Duration {
    Duration::from_secs(config.ranks.timeout_seconds).mul_f64(GRACE)
}

/// True once this process has reported which rank was lost.
static IS_LOSS_TOLD: AtomicBool = AtomicBool::new(false);

/// The share of its grace period in which the current step may fail with a more specific message. A
/// launcher kills all ranks one second after the first has ended.
const UNTOLD: f64 = 0.2;

/// Ends the process if it has not ended by itself: it may hang in a collective that lacks a rank.
fn end_after(lost: &Lost, rank: usize, grace: Duration) {
    std::thread::sleep(grace.mul_f64(UNTOLD));
    if !IS_LOSS_TOLD.swap(true, Ordering::SeqCst) {
        Progress::of_rank(rank).say(&format!("error: {}", lost_rank_message(lost)));
    }
    std::thread::sleep(grace.mul_f64(1.0 - UNTOLD));
    end_now(exit::of_survivor(lost.code));
}

/// Ends the process, and removes incomplete files.
fn end_now(code: u8) {
    dali::unfinished::remove_all_and(|| signal_hook::low_level::exit(i32::from(code)));
}

fn lost_rank_message(lost: &Lost) -> String {
    EngineError::from(RanksError::Lost(Box::new(lost.clone()))).to_string()
}

/// Opens the device of this rank, and joins it to the devices of the others.
///
/// # Errors
/// As for [`DeviceArgs::open`]; ranks on devices of different kinds; NCCL missing or failing.
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
    let id = group.broadcast("the identifier of NCCL's group", &id)?;
    let Ok(id) = id.try_into() else {
        return Err(EngineError::RankLost("the first rank sent no identifier of NCCL".into()));
    };
    let ranks = Ranks { rank: launch.rank, count: launch.ranks };
    join_nccl(&cuda, ranks, &id, config)?;
    let (lost, rank, grace) = (cuda.clone(), launch.rank, grace(config));
    group.on_loss(Box::new(move |loss| {
        // The process ends below, regardless of the driver and NCCL.
        let abort = move || drop(lost.abort());
        let _ = std::thread::Builder::new().name("abort".into()).spawn(abort);
        end_after(loss, rank, grace);
    }));
    Ok(Backend::Device(cuda))
}

/// Properties that the devices of all ranks must have in common. Plans, and thus the rounding
/// of all-reduced gradients, depend on the GPU model.
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

/// Restarts this process with the variables that NCCL reads when it is loaded, if they are missing:
/// afterwards it is too late.
///
/// # Errors
/// A process that cannot be restarted.
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

/// Opens the first visible GPU in a group of one rank, through NCCL, to run the all-reduces with a
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

/// Runs a rank's part to its end. Ranks that end in agreement exit together, since a launcher may
/// kill the others as soon as one has exited; a rank that fails reports the reason to the others.
pub(super) fn ending_together(
    group: &Group,
    run: impl FnOnce() -> Result<Outcome, EngineError>,
) -> Result<Outcome, EngineError> {
    let result = run().map_err(|fault| match group.lost() {
        // Any failure is a consequence of the lost rank.
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
    // Before it exits: a launcher may kill the others as soon as one has exited.
    let Err(fault) = &result else {
        group.leave(None);
        return result;
    };
    print_error(fault);
    if is_of_all(fault) {
        // After this rank 0 has printed the error; if the barrier fails, each rank ends anyway.
        let _ = group.barrier("the word of the first rank");
    }
    let (code, sentence) = (super::code(fault), fault.to_string());
    let agreed = is_of_all(fault) || is_loss(fault);
    group.leave((!agreed).then_some((code, sentence.as_str())));
    end_if_it_hangs(fault);
    Err(EngineError::Ranks { code })
}

/// Ends the process at once after a device hang: handlers of the driver would wait for it.
pub(super) fn end_if_it_hangs(fault: &EngineError) {
    if matches!(fault, EngineError::Hangs(_)) {
        end_now(super::code(fault));
    }
}

/// True if all ranks end with this error, at the same point.
fn is_of_all(fault: &EngineError) -> bool {
    matches!(fault, EngineError::Diverged { .. } | EngineError::OfAllRanks(_))
}

/// True if another rank is the cause.
fn is_loss(fault: &EngineError) -> bool {
    matches!(fault, EngineError::RankLost(_) | EngineError::RankFailed { .. })
}

/// Ends this rank, and with it the others, if its training hangs.
pub(super) fn watch(team: &Team, config: &Config) {
    let limit = Duration::from_secs(config.ranks.stall_seconds);
    if team.is_alone() || limit.is_zero() {
        return;
    }
    // Without the team: the watch ends with it.
    let (rank, group) = (team.ranks().rank, team.group().clone());
    team.watch(limit, move |sentence| {
        Progress::of_rank(rank).say(&format!("error: {sentence}"));
        group.leave(Some((exit::RANK_LOST, sentence)));
        end_now(exit::RANK_LOST);
    });
}

/// Prints why a command failed. With several ranks, the message names the rank; an error that all
/// ranks have is printed only by rank 0.
pub(super) fn print_error(error: &EngineError) {
    let launch = Launch::from_env().unwrap_or_else(|_| Launch::single());
    let progress = match (error, launch.ranks, launch.rank) {
        // Printed already, by this rank or by rank 0.
        (EngineError::Ranks { .. }, ..) => return,
        (fault, ..) if is_loss(fault) && IS_LOSS_TOLD.swap(true, Ordering::SeqCst) => {
            return;
        }
        (fault, _, 1..) if is_of_all(fault) => return,
        (_, 1, _) => Progress::loud(),
        (_, _, rank) => Progress::of_rank(rank),
    };
    let text = match error {
        // One line for any file name; other messages may have a table, or lines of a config.
        EngineError::Io { .. }
        | EngineError::Data(_)
        | EngineError::Image { .. }
        | EngineError::Score(_) => plain(&error.to_string()),
        other => other.to_string(),
    };
    progress.say(&format!("error: {text}"));
}

/// Threads of this rank: its share of the machine's cores, and no more than it is bound to.
pub(super) fn threads_of_rank() -> usize {
    own_cores(Launch::from_env().map_or(1, |launch| launch.local_ranks))
}

/// Environment variable with the process that started a rank.
pub(super) const PARENT: &str = "ONEGRAPH_PARENT_PID";

/// Ends a rank whose parent, which started all ranks, is gone.
fn end_with_parent() {
    let parent = std::env::var(PARENT).ok().and_then(|pid| pid.parse::<i32>().ok());
    let Some(parent) = parent else { return };
    let is_gone = move || rustix::process::getppid().is_none_or(|pid| pid.as_raw_pid() != parent);
    let watch = move || {
        while !is_gone() {
            std::thread::sleep(Duration::from_secs(1));
        }
        Progress::loud().say("error: the process that started the ranks is gone");
        end_now(exit::RANK_LOST);
    };
    // Without a thread, the rank outlives its parent.
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
    fn permanent_fault_sets_rank_exit_code() {
        for (told, own) in [
            (Some(exit::BAD_DATA), exit::BAD_DATA),
            (Some(exit::BAD_CONFIG), exit::BAD_CONFIG),
            (Some(exit::FAILED), exit::FAILED),
            // Another GPU may work, and the next start continues from the checkpoint.
            (Some(exit::NO_DEVICE), exit::RANK_LOST),
            (Some(exit::INTERRUPTED), exit::RANK_LOST),
            (None, exit::RANK_LOST),
        ] {
            assert_eq!(exit::of_survivor(told), own, "{told:?}");
        }
    }
}
