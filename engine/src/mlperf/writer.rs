//! Writes the log of a timed run, as `mlperf_logging.mllog` does.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::format::TOKEN;
use crate::append::AppendFile;
use crate::error::EngineError;

/// The kind of an event.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Point,
    Start,
    End,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Point => "POINT_IN_TIME",
            Kind::Start => "INTERVAL_START",
            Kind::End => "INTERVAL_END",
        }
    }
}

/// Wall-clock time of a run: the start time plus the elapsed monotonic time, unaffected by changes
/// to the system clock.
#[derive(Debug)]
struct Clock {
    began: Instant,
    /// Since 1970.
    began_at: Duration,
}

impl Clock {
    fn start() -> Self {
        let began_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_at }
    }

    fn milliseconds(&self) -> u64 {
        (self.began_at + self.began.elapsed()).as_millis() as u64
    }
}

/// An append-only log, written in complete lines.
#[derive(Debug)]
pub(super) struct LogWriter {
    path: PathBuf,
    file: AppendFile,
    clock: Clock,
}

impl LogWriter {
    /// Begins the log at `path`.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if the file exists; [`EngineError::Io`].
    pub(super) fn create(path: &Path) -> Result<Self, EngineError> {
        if path.exists() {
            return Err(EngineError::Usage(format!(
                "{} is the log of an earlier run: give another --out, or move it away",
                path.display()
            )));
        }
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(crate::run_dir::io(parent))?;
        }
        let (path, file) = (path.to_path_buf(), AppendFile::open(path)?);
        Ok(Self { path, file, clock: Clock::start() })
    }

    /// Removes the log, and its parent folders that are then empty.
    pub(super) fn discard(&self) -> Result<(), EngineError> {
        std::fs::remove_file(&self.path).map_err(crate::run_dir::io(&self.path))?;
        // The folders of the benchmark, the system, and all results.
        for folder in self.path.ancestors().skip(1).take(3) {
            if std::fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Writes lines that are not events.
    pub(super) fn text(&mut self, text: &str) -> Result<(), EngineError> {
        self.file.append(format!("{text}\n").as_bytes())
    }

    /// Writes an event with the current time.
    pub(super) fn event(
        &mut self,
        kind: Kind,
        key: &str,
        value: Value,
        metadata: Value,
    ) -> Result<(), EngineError> {
        self.event_ago(Duration::ZERO, kind, key, value, metadata)
    }

    /// Writes an event that happened `ago` before now.
    pub(super) fn event_ago(
        &mut self,
        ago: Duration,
        kind: Kind,
        key: &str,
        value: Value,
        metadata: Value,
    ) -> Result<(), EngineError> {
        let time = self.clock.milliseconds() - ago.as_millis() as u64;
        // Fields in the order that mllog writes, for human readers.
        let kind = kind.name();
        let line = format!(
            "{TOKEN} {{\"namespace\": \"\", \"time_ms\": {time}, \"event_type\": \"{kind}\", \
             \"key\": {}, \"value\": {value}, \"metadata\": {metadata}}}\n",
            Value::from(key)
        );
        self.file.append(line.as_bytes())
    }

    /// Writes a value that applies to the whole run.
    pub(super) fn fact(&mut self, key: &str, value: impl Into<Value>) -> Result<(), EngineError> {
        self.event(Kind::Point, key, value.into(), json!({}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a system clock that is set back by one day after the start.
    #[test]
    fn setting_system_clock_back_does_not_affect_log_times() {
        let day = Duration::from_secs(24 * 3600);
        let began_at = Clock::start().began_at + day;
        let clock = Clock { began: Instant::now(), began_at };
        let first = clock.milliseconds();
        assert!(u128::from(first) >= began_at.as_millis());
        assert!(clock.milliseconds() >= first);
    }
}
