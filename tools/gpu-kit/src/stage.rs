//! One stage: a process with a limit, and the interpretation of its end.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::archive::Product;
use super::child::{self, Ended, Limit};
use super::items::{self, ItemLimits};
use super::program::Program;
use super::reading::Reading;
use super::report::{Outcome, Row};
use super::runner::Runner;

/// Bytes of a stage's words in the report.
const TEXT_BYTES: usize = 16 << 10;

/// A future row of the table.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) name: String,
    pub(super) limit: Duration,
    /// Skipped if less time than this remains.
    least: Duration,
    /// Optional: it runs if there is time, and no time is not a failure.
    optional: bool,
    /// Fails without a device, and is not started then.
    pub(super) needs_device: bool,
    /// `Err`: skipped here, for this reason.
    program: Result<Program, String>,
    items: Option<ItemLimits>,
    /// Python modules that it needs.
    modules: &'static [&'static str],
    /// It is asked to end this long before its limit.
    notice: Option<Duration>,
    products: Vec<Product>,
    /// JSON in the scratch folder that the report includes.
    details: Option<String>,
    reading: Reading,
}

impl Stage {
    pub(super) fn new(name: &str, limit: u64, program: Result<Program, String>) -> Self {
        let named = |program: Program| program.of_stage(name);
        Self {
            name: name.to_string(),
            limit: Duration::from_secs(limit),
            least: Duration::from_secs(1),
            optional: false,
            needs_device: true,
            program: program.map(named),
            items: None,
            modules: &[],
            notice: None,
            products: Vec::new(),
            details: None,
            reading: Reading::Said,
        }
    }

    pub(super) fn least(mut self, seconds: u64) -> Self {
        self.least = Duration::from_secs(seconds);
        self
    }

    pub(super) fn at_most(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    pub(super) fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    pub(super) fn without_device(mut self) -> Self {
        self.needs_device = false;
        self
    }

    pub(super) fn items(mut self, limits: ItemLimits) -> Self {
        self.items = Some(limits);
        self
    }

    pub(super) fn modules(mut self, modules: &'static [&'static str]) -> Self {
        self.modules = modules;
        self
    }

    pub(super) fn notice(mut self, seconds: u64) -> Self {
        self.notice = Some(Duration::from_secs(seconds));
        self
    }

    /// The value of [`SECONDS`]: the remaining time less `start`, at most `most`.
    pub(super) fn told_seconds(mut self, most: u64, start: u64) -> Self {
        self.program = self.program.map(|program| program.seconds(most, start));
        self
    }

    pub(super) fn details(mut self, file: &str) -> Self {
        self.details = Some(file.to_string());
        self
    }

    pub(super) fn reading(mut self, reading: Reading) -> Self {
        self.reading = reading;
        self
    }

    /// A file of the scratch folder that is kept, by itself or under a key of a shared one.
    pub(super) fn keeps(mut self, file: &str, kept: &'static str, key: Option<&str>) -> Self {
        let key = key.map(str::to_string);
        self.products.push(Product { file: file.to_string(), kept, key });
        self
    }

    /// Limits where kernels run on the CPU.
    pub(super) fn slower(&mut self, times: u32) {
        self.limit *= times;
        self.least = Duration::from_secs(1);
        if let Some(items) = &mut self.items {
            items.each *= times;
            items.start *= times;
        }
    }

    /// Limits each item to this many seconds.
    pub(super) fn bound_items(&mut self, seconds: u64) {
        if let Some(items) = &mut self.items {
            items.each = Duration::from_secs(seconds);
        }
    }

    /// Runs it, for as long as the call has time.
    pub(super) fn run(&self, runner: &mut Runner) -> Row {
        let begin = Instant::now();
        let row = self.result(runner);
        runner.archive.collect(&self.products);
        let clocks = runner.clocks.as_ref().map_or(Value::Null, |clocks| clocks.since(begin));
        Row { clocks, seconds: begin.elapsed().as_secs_f64(), ..row }
    }

    fn result(&self, runner: &mut Runner) -> Row {
        let row = |outcome, figure: &str| Row::new(&self.name, outcome, 0.0, figure);
        let skipped = |why: &str| row(Outcome::Skipped, &format!("SKIPPED: {why}"));
        let program = match &self.program {
            Ok(program) => program,
            Err(why) => return skipped(why),
        };
        let left = runner.left();
        if left < self.least {
            let why = format!(
                "no time was left for it: {} s of at least {}",
                left.as_secs(),
                self.least.as_secs()
            );
            return if self.optional { skipped(&why) } else { row(Outcome::Failed, &why) };
        }
        if let Some(missing) = self.modules.iter().find(|module| !program.has_module(module)) {
            return skipped(&format!("no {missing} for python3"));
        }
        let limit = self.limit.min(left);
        if let Some(limits) = self.items {
            let tally = items::run(program, limit, limits, runner);
            return Row { details: tally.details(), ..row(tally.outcome(), &tally.figure()) };
        }
        let mut log = runner.archive.stage_log(&self.name);
        let limits = Limit { all: limit, notice: self.notice };
        let ended = child::run(&mut program.command(limit), limits, |event| {
            runner.saw(&event, &mut log, &self.products)
        });
        runner.archive.end(log);
        match ended {
            Ok(ended) => self.read(&ended, &runner.scratch),
            Err(why) => row(Outcome::Failed, &why),
        }
    }

    /// The row that the end of its process means.
    fn read(&self, ended: &Ended, scratch: &Path) -> Row {
        let details = self.details.as_ref().and_then(|file| json(&scratch.join(file)));
        let details = match self.reading {
            Reading::Words => json!({"text": cut(&ended.text())}),
            _ => details.unwrap_or_default(),
        };
        let table = self.products.first().map(|product| scratch.join(&product.file));
        let (outcome, figure) = self.reading.of(ended, &details, table.as_deref());
        // Results with their own file are not repeated.
        let kept = self.products.iter().any(|product| Some(&product.file) == self.details.as_ref());
        let details = if kept { Value::Null } else { details };
        Row { details, ..Row::new(&self.name, outcome, 0.0, &figure) }
    }
}

fn cut(text: &str) -> &str {
    let most = (0..=TEXT_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..most.unwrap_or(0)]
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::archive::Archive;
    use super::super::program::SECONDS;
    use super::*;

    fn runner(folder: &Path, total: Duration) -> Runner {
        let archive = Archive::new(&folder.join("out"), folder).expect("an archive");
        Runner::new(archive, folder.to_path_buf(), total, None).expect("a runner")
    }

    #[test]
    fn seconds_are_what_is_left() {
        let program = Program::new(Path::new("bench"), Path::new("."));
        let program = program.args(["--seconds", SECONDS]).seconds(45, 35);
        let told = |left| {
            let command = program.command(Duration::from_secs(left));
            command.get_args().nth(1).expect("an argument").to_string_lossy().into_owned()
        };
        assert_eq!((told(300), told(60), told(10)), ("45".into(), "25".into(), "1".into()));
    }

    #[test]
    fn a_file_is_named_once_it_is_there() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = Program::new(Path::new("bench"), folder.path()).file("--ceilings", "c.json");
        let args = || program.command(Duration::ZERO).get_args().len();
        assert_eq!(args(), 0);
        std::fs::write(folder.path().join("c.json"), "{}").expect("a file");
        assert_eq!(args(), 2);
    }

    #[test]
    fn what_has_no_time_left_is_a_row() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut runner = runner(folder.path(), Duration::ZERO);
        let program = || Ok(Program::new(Path::new("true"), folder.path()));
        let row = Stage::new("late", 1, program()).run(&mut runner);
        assert_eq!(row.outcome, Outcome::Failed);
        assert_eq!(row.figure, "no time was left for it: 0 s of at least 1");
        let row = Stage::new("late", 1, program()).optional().run(&mut runner);
        assert_eq!(row.outcome, Outcome::Skipped);
    }

    #[test]
    fn a_missing_module_of_python_is_no_failure() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let stage = |module| {
            let program =
                Program::new(Path::new("python3"), folder.path()).args(["-c", "print(7)"]);
            Stage::new("peer", 20, Ok(program)).modules(module)
        };
        let mut runner = runner(folder.path(), Duration::from_secs(60));
        let row = stage(&["no_such_module"]).run(&mut runner);
        assert_eq!(row.figure, "SKIPPED: no no_such_module for python3");
        if Program::new(Path::new("python3"), folder.path()).has_module("json") {
            assert_eq!(stage(&["json"]).run(&mut runner).figure, "7");
        }
    }
}
