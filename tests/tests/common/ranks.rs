//! A run with several processes, and its failures.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Place;

/// Default timeout for an expected line or the end of a run.
const PATIENCE: Duration = Duration::from_secs(120);

/// `mpirun`, configured to start any number of ranks, also as root.
pub(crate) fn mpirun(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np"]);
    command.arg(ranks.to_string()).env(super::GPUS, "");
    command
}

/// The command as `ranks` processes under mpirun.
pub(crate) fn under_mpirun(place: &Place, ranks: usize, arguments: &str) -> Command {
    let (of_one, mut all) = (place.command(arguments), mpirun(ranks));
    all.arg(of_one.get_program()).args(of_one.get_args());
    all
}

/// A run in progress.
pub(crate) struct Running<'a> {
    place: &'a Place,
    /// The processes of the ranks, or the single process that started them.
    processes: Vec<Child>,
    lines: Receiver<String>,
    sender: Sender<String>,
    said: String,
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit codes of the processes; 128 plus the signal number if a signal ended the process.
    pub(crate) codes: Vec<i32>,
    /// Errors and progress of all ranks.
    pub(crate) said: String,
    /// Standard output of all ranks.
    pub(crate) out: String,
}

impl<'a> Running<'a> {
    fn new(place: &'a Place) -> Self {
        let _ = fs::remove_file(place.join("printed"));
        let (sender, lines) = channel();
        Self { place, processes: Vec::new(), lines, sender, said: String::new() }
    }

    /// Starts the command with `arguments` as this many ranks.
    pub(crate) fn start(place: &'a Place, ranks: usize, arguments: &str) -> Self {
        Self::of(place, (0..ranks).map(|_| place.command(arguments)).collect())
    }

    /// Starts one command per rank, with the environment variables that a launcher sets. Each
    /// command runs in its folder, if it sets one.
    pub(crate) fn of(place: &'a Place, commands: Vec<Command>) -> Self {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let job = format!("{} {}", std::process::id(), RUNS.fetch_add(1, Ordering::SeqCst));
        let mut run = Self::new(place);
        let ranks = commands.len().to_string();
        for (rank, mut command) in commands.into_iter().enumerate() {
            let rank = rank.to_string();
            command.envs([("RANK", &rank), ("LOCAL_RANK", &rank), ("WORLD_SIZE", &ranks)]);
            command.envs([("LOCAL_WORLD_SIZE", &ranks), ("ONEGRAPH_JOB", &job)]);
            run.spawn(command);
        }
        run
    }

    /// Starts a command that starts the ranks.
    pub(crate) fn by(place: &'a Place, mut command: Command) -> Self {
        let mut run = Self::new(place);
        command.current_dir(place.path());
        run.spawn(command);
        run
    }

    fn spawn(&mut self, mut command: Command) {
        let mut appending = fs::OpenOptions::new();
        appending.create(true).append(true);
        let printed = appending.open(self.place.join("printed")).expect("a file");
        command.stdin(Stdio::null()).stdout(printed).stderr(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let reader = BufReader::new(process.stderr.take().expect("piped"));
        self.processes.push(process);
        let sender = self.sender.clone();
        thread::spawn(move || {
            // The receiver may have been dropped.
            reader.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
    }

    /// Reads until a line contains `words`.
    pub(crate) fn wait_for(&mut self, words: &str) {
        self.wait_within(words, PATIENCE);
    }

    /// Like [`Self::wait_for`], with a timeout of `limit`.
    pub(crate) fn wait_within(&mut self, words: &str, limit: Duration) {
        let begin = Instant::now();
        loop {
            let line = self.lines.recv_timeout(limit.saturating_sub(begin.elapsed()));
            let line = line.unwrap_or_else(|e| panic!("no line `{words}` ({e})\n{}", self.said));
            self.said += &format!("{line}\n");
            if line.contains(words) {
                return;
            }
        }
    }

    pub(crate) fn pid(&self, process: usize) -> u32 {
        self.processes[process].id()
    }

    pub(crate) fn signal(&self, process: usize, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.processes[process]), signal);
    }

    /// Sends a signal to a rank that mpirun has started.
    pub(crate) fn signal_of_mpirun(&self, rank: usize, signal: Signal) {
        let pid = self.pids_of_mpirun(Some(rank)).next().expect("the rank runs");
        kill_process(pid, signal).expect("it is there");
    }

    /// Processes that mpirun started in this folder, for one rank or for all ranks.
    fn pids_of_mpirun(&self, rank: Option<usize>) -> impl Iterator<Item = Pid> {
        let here = self.place.path().canonicalize().expect("a folder");
        let is_wanted = move |variable: &[u8]| {
            let found = str::from_utf8(variable).ok()?.strip_prefix("OMPI_COMM_WORLD_RANK=")?;
            (rank.is_none() || found.parse() == Ok(rank?)).then_some(())
        };
        fs::read_dir("/proc").expect("/proc").filter_map(move |entry| {
            let id: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let proc = |name: &str| format!("/proc/{id}/{name}");
            let variables = fs::read(proc("environ")).ok()?;
            let is_here = fs::read_link(proc("cwd")).ok()?.starts_with(&here);
            is_here.then(|| variables.split(|byte| *byte == 0).find_map(&is_wanted))??;
            Pid::from_raw(id)
        })
    }

    /// Waits at most `limit` until all processes have ended; stopped processes are continued once
    /// all other processes have ended.
    pub(crate) fn end_within(mut self, limit: Duration) -> Ended {
        let begin = Instant::now();
        let mut running: Vec<usize> = (0..self.processes.len()).collect();
        while !running.is_empty() {
            if begin.elapsed() > limit {
                self.said.extend(self.lines.try_iter().map(|line| line + "\n"));
                panic!("{running:?} run after {limit:?}\n{}", self.said);
            }
            thread::sleep(Duration::from_millis(10));
            running.retain(|&at| self.processes[at].try_wait().expect("a state").is_none());
            if let ([last], true) = (&running[..], self.processes.len() > 1) {
                self.signal(*last, Signal::CONT);
            }
        }
        let codes = self.processes.iter_mut().map(|process| {
            let status = process.wait().expect("it has ended");
            status.code().or(status.signal().map(|signal| 128 + signal)).expect("one of the two")
        });
        let codes = codes.collect();
        // Drop our sender, so that reading ends once all reader threads have ended.
        self.sender = channel().0;
        let rest: String = self.lines.iter().map(|line| line + "\n").collect();
        let said = std::mem::take(&mut self.said) + &rest;
        Ended { codes, said, out: self.place.text("printed") }
    }

    /// Waits for the end of a run without errors.
    pub(crate) fn end(self) -> Ended {
        self.end_within(PATIENCE)
    }
}

impl Ended {
    /// The lines that report an error.
    pub(crate) fn errors(&self) -> Vec<&str> {
        self.said.lines().filter(|line| line.contains("error: ")).collect()
    }

    /// The only error line of a run in which all ranks end with `code`.
    pub(crate) fn only_error(&self, code: i32) -> &str {
        assert!(self.codes.iter().all(|own| *own == code), "{:?}\n{}", self.codes, self.said);
        let [error] = self.errors()[..] else { panic!("one line\n{}", self.said) };
        error
    }

    /// Checks that each survivor reports the lost rank in one line with the reason.
    pub(crate) fn assert_names(&self, ranks: usize, lost: usize, why: &str) {
        for rank in (0..ranks).filter(|rank| *rank != lost) {
            let begin = format!("rank {rank}: error: rank {lost} on host ");
            let errors = self.errors();
            let own: Vec<_> = errors.iter().filter(|line| line.starts_with(&begin)).collect();
            let [line] = own[..] else { panic!("one line of rank {rank}\n{}", self.said) };
            let doing = format!(" while rank {rank} was ");
            for words in [" was lost at step ", why, &doing] {
                assert!(line.contains(words), "`{words}`\n{}", self.said);
            }
        }
        assert!(!self.said.contains("interrupted"), "{}", self.said);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // The processes may have ended already.
        for pid in self.pids_of_mpirun(None) {
            let _ = kill_process(pid, Signal::KILL);
        }
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
