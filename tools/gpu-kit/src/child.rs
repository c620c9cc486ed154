//! A command with a time limit in its own process group, whose output is read line by line.
//!
//! The whole group is killed, with all its descendants: a tool such as compute-sanitizer runs the
//! program that it watches in its own process, which would otherwise continue and share the GPU
//! with the next stage.

use std::io::{BufRead, BufReader, PipeReader, Read};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::SIGINT;

/// Polling interval for a silent child.
const TICK: Duration = Duration::from_millis(20);
/// How long to wait for a killed child, or its last output.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of output lines kept.
const KEPT_LINES: usize = 4000;
/// A longer line is split.
const LINE_BYTES: u64 = 16 << 10;

/// An event for the observer of a child.
#[derive(Debug)]
pub(super) enum Event<'a> {
    /// The child printed this, on either stream.
    Line(&'a str),
    /// Time has passed.
    Tick,
}

/// The time limit of a child.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) all: Duration,
    /// The group is interrupted this long before the end, for tools that then write their results.
    pub(super) notice: Option<Duration>,
}

/// How a command ended, and its output.
#[derive(Debug)]
pub(super) struct Ended {
    /// `None` if it was stopped.
    pub(super) status: Option<ExitStatus>,
    /// Why it was stopped.
    pub(super) stopped: Option<String>,
    /// The last lines of both streams.
    lines: Vec<String>,
}

/// Runs the command until it ends, for as long as the limit allows and `watch` wants it.
///
/// # Errors
/// A command that does not start, in one sentence.
pub(super) fn run(
    command: &mut Command,
    limit: Limit,
    mut watch: impl FnMut(Event<'_>) -> ControlFlow<String>,
) -> Result<Ended, String> {
    hear_interrupts();
    let program = command.get_program().to_string_lossy().into_owned();
    let at = |e: std::io::Error| format!("{program} does not start: {e}");
    let (reader, writer) = std::io::pipe().map_err(at)?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(at)?).stderr(writer);
    let started = Instant::now();
    let spawned = command.process_group(0).spawn();
    // The command holds its ends of the pipe for as long as it could be started again.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawned.map_err(at)?;
    let (sender, receiver) = sync_channel(KEPT_LINES);
    std::thread::spawn(move || read_lines(reader, &sender));
    let mut lines = Vec::new();
    let mut noticed = false;
    let (status, stopped) = loop {
        let flow = match receiver.recv_timeout(TICK) {
            Ok(line) => heard(&mut lines, line, &mut watch),
            Err(RecvTimeoutError::Timeout) => watch(Event::Tick),
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(TICK);
                watch(Event::Tick)
            }
        };
        if let ControlFlow::Break(why) = flow {
            break (None, Some(why));
        }
        let spent = started.elapsed();
        if spent >= limit.all {
            break (None, Some(format!("no end after {} s", limit.all.as_secs())));
        }
        if !noticed && limit.notice.is_some_and(|notice| spent + notice >= limit.all) {
            noticed = true;
            signal(&child, Signal::INT);
        }
        if let Some(status) = child.try_wait().map_err(|e| format!("{program}: {e}"))? {
            break (Some(status), None);
        }
    };
    // Nothing in the group outlives its stage, however the child ended.
    let descendants = if status.is_none() { descendants(child.id()) } else { Vec::new() };
    signal(&child, Signal::KILL);
    if status.is_none() {
        for pid in descendants {
            let _ = kill_process(pid, Signal::KILL);
        }
        wait_a_little(&mut child);
    }
    drain(&receiver, &mut lines, &mut watch);
    Ok(Ended { status, stopped, lines })
}

/// A child of a process that ignores SIGINT, as a script's background job does, ignores it too, and
/// would miss the notice; one of a process that answers it does not. The answer here is none.
fn hear_interrupts() {
    static HEARS: Once = Once::new();
    HEARS.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        if mask & 1 << (SIGINT - 1) != 0 {
            // Where it fails, the child is stopped without notice.
            let _ = signal_hook::flag::register(SIGINT, Arc::default());
        }
    });
}

/// Signals the child's group, which may be gone already.
fn signal(child: &Child, signal: Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

/// Children and their children, in any group: some put theirs into its own.
fn descendants(pid: u32) -> Vec<Pid> {
    let processes: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // `pid (name) state parent ..`; a name may contain anything.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(processes.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found[1..].iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)).collect()
}

/// A process stuck in the driver may not even die when killed: do not wait for it.
fn wait_a_little(child: &mut Child) {
    let killed = Instant::now();
    while killed.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(TICK);
    }
}

/// Drains the pipe. A process that left the group could hold it open forever.
fn drain(
    receiver: &Receiver<String>,
    lines: &mut Vec<String>,
    watch: &mut impl FnMut(Event<'_>) -> ControlFlow<String>,
) {
    let ended = Instant::now();
    while ended.elapsed() < PATIENCE {
        match receiver.recv_timeout(TICK) {
            Ok(line) => drop(heard(lines, line, watch)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
}

fn heard(
    lines: &mut Vec<String>,
    line: String,
    watch: &mut impl FnMut(Event<'_>) -> ControlFlow<String>,
) -> ControlFlow<String> {
    let flow = watch(Event::Line(&line));
    if lines.len() == KEPT_LINES {
        lines.drain(..KEPT_LINES / 2);
    }
    lines.push(line);
    flow
}

fn read_lines(reader: PipeReader, sender: &SyncSender<String>) {
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_string();
        if sender.send(line).is_err() {
            return;
        }
    }
}

impl Ended {
    /// The last line that starts with `head`, without it.
    pub(super) fn line(&self, head: &str) -> Option<&str> {
        self.lines.iter().rev().find_map(|line| line.strip_prefix(head)).map(str::trim)
    }

    /// The last line that contains `part`.
    pub(super) fn line_with(&self, part: &str) -> Option<&str> {
        self.lines.iter().rev().map(|line| line.trim()).find(|line| line.contains(part))
    }

    /// The last non-empty line.
    pub(super) fn last_line(&self) -> &str {
        let said = self.lines.iter().rev().map(|line| line.trim());
        said.into_iter().find(|line| !line.is_empty()).unwrap_or("said nothing")
    }

    /// All lines that were kept.
    pub(super) fn text(&self) -> String {
        self.lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(all: Duration) -> Limit {
        Limit { all, notice: None }
    }

    fn shell(script: &str, all: Duration) -> Ended {
        let mut command = Command::new("sh");
        let watch = |_: Event<'_>| ControlFlow::Continue(());
        run(command.args(["-c", script]), limit(all), watch).expect("sh starts")
    }

    #[test]
    fn both_streams_are_kept() {
        let ended = shell("echo figure: 1; echo error: two >&2; exit 3", Duration::from_secs(60));
        assert_eq!(ended.status.and_then(|s| s.code()), Some(3));
        assert_eq!((ended.line("figure: "), ended.line("error: ")), (Some("1"), Some("two")));
        assert_eq!(ended.last_line(), "error: two");
        assert_eq!(ended.line_with("two"), Some("error: two"));
    }

    #[test]
    fn one_that_hangs_is_stopped() {
        let ended = shell("echo begun; exec sleep 600", Duration::from_millis(300));
        assert!(ended.status.is_none(), "{ended:?}");
        assert_eq!(ended.stopped.as_deref(), Some("no end after 0 s"));
        assert_eq!(ended.last_line(), "begun");
    }

    #[test]
    fn one_that_is_watched_is_stopped_by_what_it_says() {
        let mut command = Command::new("sh");
        let watch = |event: Event<'_>| match event {
            Event::Line("enough") => ControlFlow::Break("it had enough".to_string()),
            _ => ControlFlow::Continue(()),
        };
        let script = "echo enough; exec sleep 600";
        let ended = run(command.args(["-c", script]), limit(Duration::from_secs(60)), watch)
            .expect("sh starts");
        assert_eq!(ended.stopped.as_deref(), Some("it had enough"));
    }

    #[test]
    fn one_that_is_given_notice_can_write_what_it_has() {
        let mut command = Command::new("sh");
        let limit =
            Limit { all: Duration::from_secs(60), notice: Some(Duration::from_millis(59_500)) };
        let script = "trap 'echo figure: 7; exit 0' INT; while :; do sleep 0.05; done";
        let watch = |_: Event<'_>| ControlFlow::Continue(());
        let ended = run(command.args(["-c", script]), limit, watch).expect("sh starts");
        assert_eq!(ended.line("figure: "), Some("7"), "{ended:?}");
        assert!(ended.stopped.is_none(), "{ended:?}");
    }

    /// The child of the child ignores what a terminal would send, and would write a file.
    #[test]
    fn a_grandchild_dies_with_its_group() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("late").display().to_string();
        let grandchild = format!("trap '' INT TERM HUP; sleep 1.5; echo alive > {file}");
        for (end, all) in [("exec sleep 600", 300), ("exit 0", 60_000)] {
            let script = format!("({grandchild}) & {end}");
            let ended = shell(&script, Duration::from_millis(all));
            assert_eq!(ended.status.is_none(), end.contains("600"), "{ended:?}");
            std::thread::sleep(Duration::from_millis(2500));
            assert!(!std::path::Path::new(&file).exists(), "it lived on after `{end}`");
        }
    }

    /// It has a group, and even a session, of its own.
    #[test]
    fn a_grandchild_of_another_group_dies_too() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("late");
        let late = format!("sleep 1.5; echo alive > {}", file.display());
        let ended = shell(&format!("setsid sh -c '{late}'"), Duration::from_millis(500));
        assert!(ended.status.is_none(), "{ended:?}");
        std::thread::sleep(Duration::from_millis(2500));
        assert!(!file.exists(), "it lived on");
    }

    #[test]
    fn one_that_is_not_there_is_named() {
        let mut command = Command::new("no-such-command");
        let watch = |_: Event<'_>| ControlFlow::Continue(());
        let error = run(&mut command, limit(Duration::from_secs(1)), watch);
        assert!(error.is_err_and(|e| e.starts_with("no-such-command does not start")));
    }
}
