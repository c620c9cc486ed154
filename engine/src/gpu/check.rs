//! The self-test of the wgmma kernels. When a GPU is first opened with the installed driver, each
//! kernel is launched a few times in a separate process, and its results are compared with the CPU
//! reference.
//!
//! The kernels were only reviewed and run on an emulator before they ran on a GPU. The self-test
//! detects a driver that compiles them incorrectly, and a broken GPU.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use device::Device;
use device::architecture::Architecture;
use device::cuda::CudaDevice;
use kernels::compiled::kernels;
use kernels::gemm_check::check_gemm_kernels;

/// Time limit. A self-test takes one or two seconds, and half a minute more if the driver must
/// compile the kernels.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(20);
/// The reason that is recorded for a self-test that exceeded the time limit.
const LATE: &str = "the self-test did not end within two minutes";

/// The output of the self-test process if it could not open the GPU.
pub(crate) const NOT_OPENED: &str = "the GPU did not open";

/// The self-test command, without its last argument, the number of the GPU.
static CHECKED_BY: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the command that runs the self-test; the GPU's number is appended as last argument. Without
/// a command, GPUs that were never tested are assumed to be correct.
pub fn checked_by(command: Vec<OsString>) {
    // Later calls have no effect.
    let _ = CHECKED_BY.set(command);
}

/// Runs the self-test on an open GPU. Returns the number of tested kernels.
///
/// # Errors
/// A message about the first wrong result or device error.
pub(crate) fn check(cuda: &CudaDevice) -> Result<usize, String> {
    let capability = cuda.gpu().capability;
    let is_specific = |kernel: &str| {
        let source = kernels().manifest().kernel(kernel, capability).map(|(source, _)| source);
        source.is_some_and(|source| source.architecture.specific)
    };
    let (launched, _) = check_gemm_kernels(cuda, &is_specific).map_err(|e| e.to_string())?;
    Ok(launched.len())
}

/// True if plans for this GPU may use wgmma kernels; prints a notice if not.
pub(super) fn passes(cuda: &CudaDevice, ordinal: usize, notice: fn(&str)) -> bool {
    if !Architecture::COMPUTE_90A.runs_on(cuda.gpu().capability) {
        return true;
    }
    let name = cuda.name();
    let key = format!("{name}, kernels {}", &kernels_sha256()[..16]);
    let mut known = known();
    let reason = match (known.get(&key), CHECKED_BY.get()) {
        (Some(reason), _) => reason.clone(),
        (None, command) => {
            let started = Instant::now();
            let found = command.and_then(|command| in_a_process(command, ordinal));
            let seconds = started.elapsed().as_secs_f64();
            let Some(reason) = found else {
                tracing::info!(name, "wgmma kernels were not tested on this GPU");
                return true;
            };
            tracing::info!(name, seconds, reason, "tested the wgmma kernels");
            known.insert(key, reason.clone());
            keep(&known);
            reason
        }
    };
    if !reason.is_empty() {
        notice(&format!(
            "warning: GEMMs run without wgmma kernels, which takes about a quarter more time: the \
             kernels failed their self-test on {name} ({reason}); to repeat the test, remove {}",
            file().map_or("no file".into(), |path| path.display().to_string())
        ));
    }
    reason.is_empty()
}

/// Runs the self-test in a separate process. Returns the reason for a failure, or an empty text on
/// success. `None` if the process could not be started or could not open the GPU, which may be in
/// exclusive-process mode.
fn in_a_process(command: &[OsString], ordinal: usize) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).arg(ordinal.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() < TIMEOUT => std::thread::sleep(LOOK),
            _ => {
                // The process exceeds the time limit, so it is killed.
                let _ = child.kill();
                let _ = child.wait();
                return Some(LATE.into());
            }
        }
    };
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        // If reading fails, the output read so far is used.
        let _ = out.read_to_string(&mut said);
    }
    match (status.success(), said.trim()) {
        (true, _) => Some(String::new()),
        (false, NOT_OPENED) => None,
        (false, "") => Some(format!("its process ended with {status}")),
        (false, said) => Some(said.to_string()),
    }
}

/// SHA-256 of the PTX of all kernels. A recorded result applies only to the same kernels.
fn kernels_sha256() -> String {
    let sources = &kernels::compiled::kernels().manifest().sources;
    let all: String = sources.iter().map(|source| format!("{}\n", source.ptx_sha256)).collect();
    crate::checkpoint::hex_digest(all.as_bytes())
}

/// The recorded results by GPU, driver and kernels: the reason for a failure, or an empty text
/// after a success.
fn known() -> BTreeMap<String, String> {
    let text = file().and_then(|path| std::fs::read_to_string(path).ok());
    // A file that cannot be read is ignored: the self-test is repeated.
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn keep(known: &BTreeMap<String, String>) {
    let text = serde_json::to_string_pretty(known).unwrap_or_default();
    let written = file().map(|path| crate::run_dir::write_whole(&path, text.as_bytes()));
    if let Some(Err(fault)) = written {
        tracing::info!("the self-test will be repeated at the next start: {fault}");
    }
}

/// The file with the recorded results.
fn file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty());
    let cache = folder("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(folder("HOME")?).join(".cache")))?;
    Some(cache.join("onegraph").join("checked-gpus.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outcomes of the self-test process: passed, failed, killed by a signal, GPU not opened,
    /// process not started.
    #[test]
    fn self_test_counts_only_if_gpu_was_opened() {
        let found = |script: &str| {
            let command = ["sh", "-c", script].map(OsString::from);
            in_a_process(&command, 0)
        };
        assert_eq!(found("echo 21 kernels").as_deref(), Some(""));
        assert_eq!(found("echo a kernel: wrong; exit 3").as_deref(), Some("a kernel: wrong"));
        let killed = found("kill -9 $$").expect("a verdict");
        assert!(killed.contains("signal"), "{killed}");
        assert_eq!(found(&format!("echo {NOT_OPENED}; exit 7")), None);
        assert_eq!(in_a_process(&["/no/such/program".into()], 0), None);
    }
}
