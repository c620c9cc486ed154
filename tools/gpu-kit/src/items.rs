//! A stage made of items: its process may die or hang in any of them, and a new one continues after
//! that item. A group of items that has ended several processes is skipped from then on: a kernel
//! that hangs would take the time of all others.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::child::{self, Ended, Event, Limit};
use super::program::Program;
use super::protocol::Line;
use super::report::Outcome;
use super::runner::Runner;

/// Maximum number of failures in the row.
const NAMED: usize = 3;
/// Maximum number of failures in the report.
const LISTED: usize = 100;
/// Characters of a name and of a reason in the row.
const NAME_CHARS: usize = 60;
const REASON_CHARS: usize = 160;
/// The budget of a group: two processes that hang, or four that crash.
const COST_OF_A_GROUP: usize = 4;
const COST_OF_A_HANG: usize = 2;
const COST_OF_A_FAULT: usize = 1;

/// The limits of such a stage.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemLimits {
    /// Time per item.
    pub(super) each: Duration,
    /// Time from the start of a process to its first item.
    pub(super) start: Duration,
    /// Number of restarts.
    pub(super) restarts: usize,
}

/// The outcome of the items.
#[derive(Debug)]
pub(super) struct Tally {
    limits: ItemLimits,
    total: Option<usize>,
    passed: usize,
    failed: Vec<(String, String)>,
    skipped: Vec<(String, String)>,
    restarts: usize,
    /// The groups of the items that processes ended in, and their cost.
    deaths: Vec<(String, usize)>,
    /// Ops run, and the largest error with its item, where items report them.
    ops: u64,
    worst: (f64, String),
    /// Figures of single items for the row.
    figures: Vec<String>,
    /// Kernels that take other registers and bytes of local memory than planned.
    others: Vec<Value>,
    /// The item that is running.
    current: Option<(usize, String)>,
    /// The first item that was not begun.
    next: usize,
    /// This process has begun an item.
    begun: bool,
    /// Time of the process's last message.
    since: Instant,
    /// All items are done.
    ended: bool,
    /// Why the rest did not run.
    gave_up: Option<String>,
}

/// The group of an item: the op of a case.
pub(super) fn group(name: &str) -> &str {
    name.split_once(" (").map_or(name, |(group, _)| group)
}

/// Runs the items for at most `limit`; the tally says how they ended.
pub(super) fn run(
    program: &Program,
    limit: Duration,
    limits: ItemLimits,
    runner: &mut Runner,
) -> Tally {
    let started = Instant::now();
    let mut tally = Tally::new(limits);
    let mut log = runner.archive.stage_log(&program.stage);
    while !tally.ended && tally.gave_up.is_none() {
        let left = limit.saturating_sub(started.elapsed());
        if left.is_zero() {
            tally.gave_up = Some("the time of the stage was up".into());
            break;
        }
        let mut command = program.command(left);
        command.arg("--from").arg(tally.next.to_string());
        for group in tally.given_up() {
            command.arg("--skip").arg(group);
        }
        tally.fresh();
        let ended = child::run(&mut command, Limit { all: left, notice: None }, |event| {
            runner.saw(&event, &mut log, &[])?;
            tally.saw(&event)
        });
        tally.after(ended, runner.interrupted());
    }
    runner.archive.end(log);
    tally
}

impl Tally {
    fn new(limits: ItemLimits) -> Self {
        Self {
            limits,
            total: None,
            passed: 0,
            failed: Vec::new(),
            skipped: Vec::new(),
            restarts: 0,
            deaths: Vec::new(),
            ops: 0,
            worst: (0.0, String::new()),
            figures: Vec::new(),
            others: Vec::new(),
            current: None,
            next: 0,
            begun: false,
            since: Instant::now(),
            ended: false,
            gave_up: None,
        }
    }

    /// A process begins.
    fn fresh(&mut self) {
        self.begun = false;
        self.current = None;
        self.since = Instant::now();
    }

    /// Handles a message from the process, or a silence that lasts too long.
    fn saw(&mut self, event: &Event<'_>) -> ControlFlow<String> {
        match event {
            Event::Line(text) => {
                if let Some(line) = Line::parse(text) {
                    self.since = Instant::now();
                    self.take(line);
                }
            }
            Event::Tick => {
                let limit = if self.begun { self.limits.each } else { self.limits.start };
                if self.since.elapsed() >= limit {
                    return ControlFlow::Break(format!("no end after {} s", limit.as_secs()));
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Of(count) => self.total = Some(count),
            Line::Begin(item, name) => {
                self.begun = true;
                self.next = item + 1;
                self.current = Some((item, name));
            }
            Line::Passed(_, figures) => {
                let Some((_, name)) = self.current.take() else { return };
                self.passed += 1;
                self.ops += figures["ops"].as_u64().unwrap_or(0);
                let worst = figures["worst"].as_f64().unwrap_or(0.0);
                if worst > self.worst.0 {
                    self.worst = (worst, name);
                }
                self.figures.extend(figures["figure"].as_str().map(String::from));
                self.others
                    .extend(figures["other_resources"].as_array().into_iter().flatten().cloned());
            }
            Line::Failed(_, why) => {
                let Some((_, name)) = self.current.take() else { return };
                let why = why.strip_prefix(&format!("{name}: ")).unwrap_or(&why).to_string();
                self.failed.push((name, why));
            }
            Line::Skipped(_, why) => {
                let Some((_, name)) = self.current.take() else { return };
                self.skipped.push((name, why));
            }
            Line::End => self.ended = true,
        }
    }

    /// A process has ended: decides whether another continues after the item that it died in.
    fn after(&mut self, ended: Result<Ended, String>, interrupted: bool) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(why) => return self.gave_up = Some(why),
        };
        if self.ended {
            return;
        }
        let why = match (&ended.stopped, ended.status) {
            (Some(why), _) => why.clone(),
            (_, Some(status)) => format!("its process ended ({status})"),
            _ => "its process ended".into(),
        };
        if let Some((_, name)) = self.current.take() {
            self.failed.push((name, why.clone()));
        }
        if let Some((name, _)) = self.failed.last().filter(|_| self.begun) {
            let cost = if ended.status.is_none() { COST_OF_A_HANG } else { COST_OF_A_FAULT };
            self.deaths.push((group(name).to_string(), cost));
        }
        if interrupted {
            self.gave_up = Some(why);
        } else if !self.begun {
            // Whatever stops a process before its first item stops the next one too.
            let said = ended.line("error: ").map(String::from);
            self.gave_up =
                Some(said.unwrap_or_else(|| format!("{why}; last said: {}", ended.last_line())));
        } else if self.total.is_some_and(|total| self.next >= total) {
            self.ended = true;
        } else if self.restarts == self.limits.restarts {
            self.gave_up = Some(format!("{} restarts are the most", self.restarts));
        } else {
            self.restarts += 1;
        }
    }

    /// The groups that may end no further process.
    fn given_up(&self) -> Vec<String> {
        let cost = |group: &str| -> usize {
            self.deaths.iter().filter(|(death, _)| death == group).map(|(_, cost)| cost).sum()
        };
        let dear = self.deaths.iter().filter(|(group, _)| cost(group) >= COST_OF_A_GROUP);
        let mut groups: Vec<String> = dear.map(|(group, _)| group.clone()).collect();
        groups.sort();
        groups.dedup();
        groups
    }

    fn not_run(&self) -> usize {
        let seen = self.passed + self.failed.len() + self.skipped.len();
        self.total.unwrap_or(0).saturating_sub(seen)
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self.total {
            _ if !self.failed.is_empty() || self.gave_up.is_some() => Outcome::Failed,
            None | Some(0) => Outcome::Failed,
            Some(_) if self.passed == 0 => Outcome::Skipped,
            Some(_) => Outcome::Passed,
        }
    }

    /// The row's sentence.
    pub(super) fn figure(&self) -> String {
        if let (None, Some(why)) = (self.total, &self.gave_up) {
            return why.clone();
        }
        let total = self.total.unwrap_or(0);
        let mut parts = match self.failed.len() {
            0 => vec![format!("{} passed", self.passed)],
            failed => {
                vec![format!("{failed} of {total} failed"), format!("{} passed", self.passed)]
            }
        };
        let mut count = |count: usize, what: &str| {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        };
        count(self.skipped.len(), "skipped");
        count(self.not_run(), "not run");
        count(self.restarts, &format!("of at most {} restarts", self.limits.restarts));
        if self.ops > 0 {
            parts.push(format!("{} ops", self.ops));
        }
        if self.worst.0 > 0.0 {
            parts.push(format!("worst {:.3} of what is allowed: {}", self.worst.0, self.worst.1));
        }
        parts.extend(self.figures.iter().cloned());
        parts.extend(self.other_resources());
        let mut text = parts.join(", ");
        if let Some(why) = &self.gave_up {
            text += &format!("; {why}");
        }
        for (name, why) in self.failed.iter().take(NAMED) {
            let short = |text: &str, most: usize| match text.char_indices().nth(most) {
                Some((at, _)) => format!("{}..", &text[..at]),
                None => text.to_string(),
            };
            text += &format!("; {}: {}", short(name, NAME_CHARS), short(why, REASON_CHARS));
        }
        text
    }

    /// How many kernels take other resources than planned, and the worst: most local memory beyond
    /// the plan, then most registers.
    fn other_resources(&self) -> Option<String> {
        let number = |kernel: &Value, at: &str| kernel.pointer(at).and_then(Value::as_i64);
        let beyond = |kernel: &Value, i: usize| {
            let [takes, planned] = ["takes", "planned"]
                .map(|what| number(kernel, &format!("/{what}/{i}")).unwrap_or(0));
            takes - planned
        };
        let worst =
            self.others.iter().max_by_key(|kernel| [beyond(kernel, 1), beyond(kernel, 0)])?;
        Some(format!(
            "{} kernels take other resources than planned, the worst {}: {:+} registers, {:+} \
             bytes of local memory",
            self.others.len(),
            worst["kernel"].as_str().unwrap_or_default(),
            beyond(worst, 0),
            beyond(worst, 1)
        ))
    }

    pub(super) fn details(&self) -> Value {
        let list = |items: &[(String, String)]| -> Vec<Value> {
            let listed = items.iter().take(LISTED);
            listed.map(|(name, why)| json!({"name": name, "why": why})).collect()
        };
        json!({
            "items": self.total,
            "passed": self.passed,
            "failed": self.failed.len(),
            "skipped": self.skipped.len(),
            "not_run": self.not_run(),
            "restarts": self.restarts,
            "gave_up": self.gave_up,
            "failures": list(&self.failed),
            "skips": list(&self.skipped),
            "other_resources": self.others,
            "worst": {"share_of_allowed": self.worst.0, "item": self.worst.1},
        })
    }
}
