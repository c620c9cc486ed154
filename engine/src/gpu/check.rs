//! The self-test of a GPU's wgmma kernels: when a GPU with this driver is first opened, each is
//! launched a few times in a separate process, and compared with the CPU reference.
//!
//! The kernels were reviewed and executed by an emulator of the instructions before they ran on a
//! GPU of each kind: this detects a driver that compiles them differently, or a broken GPU.

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

/// A self-test takes a second or two; a driver that has to compile the kernels, half a minute more.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval for polling the process.
const LOOK: Duration = Duration::from_millis(20);
/// The message for a self-test that did not complete.
const LATE: &str = "the check did not end within two minutes";

/// The command's output for a GPU that it could not open.
pub(crate) const NOT_OPENED: &str = "the GPU did not open";

/// The command that tests the GPU whose number follows.
static CHECKED_BY: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the command that runs the self-test of one GPU; the GPU's number is appended as its last
/// argument. Without a command, a GPU that was never tested is assumed to be correct.
pub fn checked_by(command: Vec<OsString>) {
    // The first call wins: a program sets its command once.
    let _ = CHECKED_BY.set(command);
}

/// Launches each wgmma kernel of an open GPU.
///
/// # Errors
/// A message about the first difference or error.
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
                tracing::info!(name, "kernels of warpgroups were not checked on this GPU");
                return true;
            };
            tracing::info!(name, seconds, reason, "checked the kernels of warpgroups");
            known.insert(key, reason.clone());
            keep(&known);
            reason
        }
    };
    if !reason.is_empty() {
        notice(&format!(
            "warning: GEMMs run without wgmma kernels, in about a quarter more time: on \
             {name} they failed their self-test ({reason}); {} keeps this",
            file().map_or("no file".into(), |path| path.display().to_string())
        ));
    }
    reason.is_empty()
}

/// Why the kernels failed in a separate process, empty if they did not; `None` if it did not start,
/// or could not open the GPU, which may be in exclusive-process mode.
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
                // It hangs, without further output.
                let _ = child.kill();
                let _ = child.wait();
                return Some(LATE.into());
            }
        }
    };
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        // Its last output is all there is.
        let _ = out.read_to_string(&mut said);
    }
    match (status.success(), said.trim()) {
        (true, _) => Some(String::new()),
        (false, NOT_OPENED) => None,
        (false, "") => Some(format!("its process ended with {status}")),
        (false, said) => Some(said.to_string()),
    }
}

/// SHA-256 of the PTX of all kernels: results for other kernels do not apply.
fn kernels_sha256() -> String {
    let sources = &kernels::compiled::kernels().manifest().sources;
    let all: String = sources.iter().map(|source| format!("{}\n", source.ptx_sha256)).collect();
    crate::checkpoint::hex_digest(all.as_bytes())
}

/// Results by GPU, driver and kernels: the reason of a failure, or nothing.
fn known() -> BTreeMap<String, String> {
    let text = file().and_then(|path| std::fs::read_to_string(path).ok());
    // A file that cannot be read is ignored: the self-test is repeated.
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn keep(known: &BTreeMap<String, String>) {
    let text = serde_json::to_string_pretty(known).unwrap_or_default();
    let written = file().map(|path| crate::run_dir::write_whole(&path, text.as_bytes()));
    if let Some(Err(fault)) = written {
        tracing::info!("the check comes again at the next start: {fault}");
    }
}

/// The user's file of results.
fn file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty());
    let cache = folder("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(folder("HOME")?).join(".cache")))?;
    Some(cache.join("onegraph").join("checked-gpus.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outcomes of the testing process: pass, fail, killed by a signal, and undecided.
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
