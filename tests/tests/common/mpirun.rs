//! A run of several processes under a real mpirun, and its faults.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Place;

/// How long a test waits for a line or an end that has no limit of its own.
const PATIENCE: Duration = Duration::from_secs(120);

/// Leaves the exit code of a rank in a file, and ends as the rank did.
pub(crate) const RANK: &str = "trap : TERM USR1; \"$0\" \"$@\"; code=$?; \
                    echo $code > code.$OMPI_COMM_WORLD_RANK; \
                    [ $code = 137 ] && kill -KILL $$; exit $code";

/// `mpirun`, allowed to start as many ranks as asked for, as root too.
pub(crate) fn mpirun() -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    command.env(super::GPUS, "");
    command
}

/// A run while it goes on.
pub(crate) struct Running<'a> {
    place: &'a Place,
    mpirun: Child,
    lines: Receiver<String>,
    said: String,
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code of mpirun.
    pub(crate) code: i32,
    /// Exit codes by rank; ranks that left none are missing.
    pub(crate) codes: BTreeMap<usize, i32>,
    /// Output of all ranks since it began.
    pub(crate) said: String,
    /// From the fault to the end of the last rank.
    pub(crate) seconds: f64,
}

impl<'a> Running<'a> {
    /// Starts the command with `arguments` as this many ranks. No other run uses the place.
    pub(crate) fn start(place: &'a Place, ranks: usize, arguments: &str) -> Self {
        let command = place.command(arguments);
        let mut all = mpirun();
        all.args(["-np", &ranks.to_string(), "sh", "-c", RANK]);
        all.arg(command.get_program()).args(command.get_args());
        Self::start_by(place, all)
    }

    /// Starts what an mpirun with all its arguments describes; what it prints goes to the file
    /// `printed`.
    pub(crate) fn start_by(place: &'a Place, mut command: Command) -> Self {
        for rank in 0..8 {
            // Most were never there.
            let _ = fs::remove_file(place.join(&format!("code.{rank}")));
        }
        let printed = fs::File::create(place.join("printed")).expect("a file");
        command.current_dir(place.path()).stdin(Stdio::null()).stdout(printed);
        let mut mpirun = command.stderr(Stdio::piped()).spawn().expect("mpirun starts");
        let reader = BufReader::new(mpirun.stderr.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            // Whoever waits for lines may be gone.
            reader.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
        Self { place, mpirun, lines, said: String::new() }
    }

    /// Reads until a line contains `words`.
    pub(crate) fn wait_for(&mut self, words: &str) {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|e| panic!("no line `{words}` ({e})\n{}", self.said));
            self.said += &format!("{line}\n");
            if line.contains(words) {
                return;
            }
        }
    }

    /// The ranks that run, with their process ids.
    fn pids(&self) -> BTreeMap<usize, Pid> {
        let here = self.place.path().canonicalize().expect("a folder");
        let ids = fs::read_dir("/proc").expect("/proc").filter_map(|entry| {
            let id: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let proc = |name: &str| format!("/proc/{id}/{name}");
            let is_rank = fs::read_link(proc("exe")).ok()?.file_name()? == PROGRAM;
            if !is_rank || !fs::read_link(proc("cwd")).ok()?.starts_with(&here) {
                return None;
            }
            let variables = fs::read(proc("environ")).ok()?;
            let rank = variables.split(|byte| *byte == 0).find_map(|variable| {
                str::from_utf8(variable).ok()?.strip_prefix("OMPI_COMM_WORLD_RANK=")
            });
            Some((rank?.parse().ok()?, Pid::from_raw(id)?))
        });
        ids.collect()
    }

    pub(crate) fn signal(&self, rank: usize, signal: Signal) {
        let pid = self.pids().get(&rank).copied().expect("the rank runs");
        kill_process(pid, signal).expect("it is there");
    }

    pub(crate) fn signal_mpirun(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.mpirun), signal).expect("it is there");
    }

    /// Waits for the end of all ranks, which may take `limit` from now on, and of mpirun.
    pub(crate) fn end_within(mut self, limit: Duration) -> Ended {
        let begin = Instant::now();
        while !self.pids().is_empty() {
            let late = begin.elapsed() > limit;
            assert!(!late, "{:?} run after {limit:?}\n{}", self.pids(), self.rest());
            thread::sleep(Duration::from_millis(10));
        }
        let seconds = begin.elapsed().as_secs_f64();
        while self.mpirun.try_wait().expect("a state").is_none() {
            assert!(begin.elapsed() < limit + PATIENCE, "mpirun hangs\n{}", self.rest());
            thread::sleep(Duration::from_millis(10));
        }
        let code = self.mpirun.wait().expect("it has ended").code().expect("no signal");
        while let Ok(line) = self.lines.recv() {
            self.said += &format!("{line}\n");
        }
        let code_of = |rank| {
            let text = fs::read_to_string(self.place.join(&format!("code.{rank}"))).ok()?;
            Some((rank, text.trim().parse().ok()?))
        };
        let codes = (0..8).filter_map(code_of).collect();
        Ended { code, codes, said: std::mem::take(&mut self.said), seconds }
    }

    /// Waits for the end of a run without a fault.
    pub(crate) fn end(self) -> Ended {
        self.end_within(PATIENCE)
    }

    /// All that was said until now.
    fn rest(&mut self) -> String {
        self.said.extend(self.lines.try_iter().map(|line| line + "\n"));
        self.said.clone()
    }
}

impl Ended {
    /// The lines that report a fault.
    pub(crate) fn errors(&self) -> Vec<&str> {
        self.said.lines().filter(|line| line.contains("error: ")).collect()
    }
}

/// The survivor of two names the rank that was lost, in one line, and ends with 8.
pub(crate) fn assert_names(ended: &Ended, lost: usize, why: &str) {
    let survivor = 1 - lost;
    let begin = format!("rank {survivor}: error: rank {lost} on host ");
    let errors = ended.errors();
    let of_survivor: Vec<_> = errors.iter().filter(|line| line.starts_with(&begin)).collect();
    assert_eq!(of_survivor.len(), 1, "{}", ended.said);
    let line = of_survivor[0];
    assert!(line.contains(" was lost at step ") && line.contains(why), "{}", ended.said);
    assert!(line.contains(&format!(" while rank {survivor} was ")), "{}", ended.said);
    assert_eq!(ended.codes.get(&survivor), Some(&super::RANK_LOST), "{}", ended.said);
    assert!(!ended.said.contains("interrupted"), "{}", ended.said);
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        for pid in self.pids().into_values() {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.mpirun.kill();
        let _ = self.mpirun.wait();
    }
}

/// The file name of the command.
const PROGRAM: &str = "onegraph-under-test";
