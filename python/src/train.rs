//! Training, like `onegraph train`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use engine::train::Outcome;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{error, overrides, prepare};

/// Polling interval for signals and for new rows of the metrics.
const TICK: Duration = Duration::from_millis(100);

/// Trains; `arguments` are those of `onegraph train` without config overrides. `tick` is called
/// with the run directory repeatedly during the run, and once after it.
#[pyfunction]
pub(crate) fn train(
    py: Python<'_>,
    mut arguments: Vec<String>,
    set: &Bound<'_, PyDict>,
    tick: &Bound<'_, PyAny>,
) -> PyResult<PathBuf> {
    prepare()?;
    for pair in overrides(Some(set))? {
        arguments.extend(["--set".to_string(), pair]);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let (begun, begins) = channel();
    let asked = interrupted.clone();
    let begin = move |run: &std::path::Path| drop(begun.send(run.to_path_buf()));
    let run = std::thread::Builder::new()
        .name("train".into())
        .spawn(move || engine::cli::train(&arguments, asked, &begin))
        .map_err(error)?;
    let mut place = None;
    let mut raised = None;
    loop {
        let is_over = py.detach(|| {
            std::thread::sleep(TICK);
            run.is_finished()
        });
        place = place.or_else(|| begins.try_recv().ok());
        let seen = match &place {
            Some(place) => py.check_signals().and_then(|()| tick.call1((place,)).map(drop)),
            None => py.check_signals(),
        };
        // After an error of `tick`, the run completes its step and saves; only the first error is
        // reported.
        if let Err(fault) = seen {
            interrupted.store(true, Ordering::SeqCst);
            raised.get_or_insert(fault);
        }
        if is_over {
            break;
        }
    }
    let outcome = run.join().map_err(|_| error("the run panicked; its message is on stderr"))?;
    if let Some(fault) = raised {
        return Err(fault);
    }
    match outcome.map_err(error)? {
        Outcome::Interrupted => Err(PyKeyboardInterrupt::new_err("the run was interrupted")),
        _ => place.ok_or_else(|| error("the run did not create a run directory")),
    }
}
