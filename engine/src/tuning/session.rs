//! The process that watches: it starts the one that measures, again behind a choice that ended it,
//! and makes the table.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::table::{Refused, Row, Table};
use super::trials::{Event, Product, Start};
use crate::error::EngineError;

/// A process that says nothing for so long hangs: a choice takes seconds.
const SILENCE: Duration = Duration::from_secs(180);

/// The measurements so far.
pub(crate) struct Session<'a> {
    /// Starts the process that measures from here on, with its output as a pipe.
    start: &'a dyn Fn(Start) -> Command,
    /// Takes the table with each product that is complete: its name, place and their number.
    done: Done<'a>,
    table: Table,
}

type Done<'a> = &'a mut dyn FnMut(&Table, &str, (usize, usize)) -> Result<(), EngineError>;

/// A product that is being measured.
struct Measured {
    product: Product,
    /// Places of choices, with their medians.
    times: Vec<(usize, f64)>,
    refused: Vec<Refused>,
}

impl Measured {
    fn refuse(&mut self, choice: usize, reason: String) {
        self.refused.push(Refused { choice: self.product.choices[choice].clone(), reason });
    }
}

/// How a process of measurements ended.
enum End {
    Complete,
    /// Before its first choice, or outside of any: with the process's exit code.
    Failed(Option<i32>),
    /// While something of a product ran: its first run, or a choice.
    Inside {
        choice: Option<usize>,
        reason: String,
    },
}

/// The table, and what it is worth.
pub(crate) struct Tuned {
    /// The table.
    pub(crate) table: Table,
    /// Milliseconds of all launches by the model's choices, and by the best.
    pub(crate) sums: [f64; 2],
}

impl<'a> Session<'a> {
    /// A session that measures nothing yet, for a GPU of this name.
    pub(crate) fn new(
        (gpu, device): (String, String),
        repeats: usize,
        start: &'a dyn Fn(Start) -> Command,
        done: Done<'a>,
    ) -> Self {
        Self { start, done, table: Table::new(gpu, device, repeats) }
    }

    /// Measures all products.
    ///
    /// # Errors
    /// [`EngineError::Ranks`] with the exit code of a process that failed outside of a measurement,
    /// and has said why; [`EngineError::Usage`] if it does not start.
    pub(crate) fn run(mut self) -> Result<Tuned, EngineError> {
        let (mut at, mut open) = (Start::default(), None::<Measured>);
        loop {
            match self.follow(at, &mut open)? {
                End::Complete => break,
                End::Failed(code) => {
                    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
                    return Err(EngineError::Ranks { code });
                }
                End::Inside { choice, reason } => {
                    let Some(of) = &mut open else { unreachable!("something of a product") };
                    let index = of.product.index;
                    at = match choice {
                        Some(choice) => {
                            of.refuse(choice, reason);
                            Start { product: index, choice: choice + 1 }
                        }
                        // Without its first run nothing of it can be compared.
                        None => Start { product: index + 1, choice: 0 },
                    };
                }
            }
        }
        self.complete(open)?;
        let sum = |of: fn(&Row) -> f64| {
            self.table.products.values().map(|row| row.launches as f64 * of(row)).sum()
        };
        let sums = [sum(|row| row.model_ms.unwrap_or(row.best_ms)), sum(|row| row.best_ms)];
        Ok(Tuned { table: self.table, sums })
    }

    /// Follows one process from `at` to its end; `open` is the product that it is at.
    fn follow(&mut self, at: Start, open: &mut Option<Measured>) -> Result<End, EngineError> {
        let mut command = (self.start)(at);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|e| {
                EngineError::Usage(format!("the process that measures does not start: {e}"))
            })?;
        let lines = lines_of(&mut child);
        let mut running: Option<Option<usize>> = None;
        let reason = loop {
            let event = match lines.recv_timeout(SILENCE) {
                Ok(line) => serde_json::from_str::<Event>(&line),
                Err(RecvTimeoutError::Timeout) => {
                    break format!("ran for more than {} s", SILENCE.as_secs());
                }
                Err(RecvTimeoutError::Disconnected) => break String::new(),
            };
            match event {
                // Other programs' words in its output are none of this one's.
                Err(_) => {}
                Ok(Event::End) => {
                    // It has nothing left to do but to end.
                    let _ = child.wait();
                    return Ok(End::Complete);
                }
                Ok(Event::Begin(choice)) => running = Some(choice),
                Ok(Event::Product(product)) => {
                    if open.as_ref().is_none_or(|open| open.product.index != product.index) {
                        self.complete(open.take())?;
                        *open = Some(Measured { product, times: vec![], refused: vec![] });
                    }
                    running = None;
                }
                Ok(Event::Done { choice, ms }) => {
                    open.iter_mut().for_each(|open| open.times.push((choice, ms)));
                    running = None;
                }
                Ok(Event::Refused { choice, reason }) => {
                    open.iter_mut().for_each(|open| open.refuse(choice, reason.clone()));
                    running = None;
                }
            }
        };
        // A process that hangs is ended; one that has ended does not mind.
        let _ = child.kill();
        let status = child.wait().ok();
        let code = status.and_then(|status| status.code());
        match running {
            None => Ok(End::Failed(code)),
            Some(choice) if reason.is_empty() => {
                let ended = status.map_or("an unknown status".into(), |status| status.to_string());
                Ok(End::Inside { choice, reason: format!("ended its process with {ended}") })
            }
            Some(choice) => Ok(End::Inside { choice, reason }),
        }
    }

    /// Adds the row of a product; none of one that nothing computed.
    fn complete(&mut self, open: Option<Measured>) -> Result<(), EngineError> {
        let Some(Measured { product, times, refused }) = open else { return Ok(()) };
        let Product { index, of, name, launches, model, choices } = product;
        let best = times.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let Some(&(best, best_ms)) = best else { return Ok(()) };
        let model_ms = times.iter().find(|(i, _)| choices[*i] == model).map(|(_, ms)| *ms);
        let best = choices[best].clone();
        let measured = times.len();
        let row = Row { launches, best, best_ms, model, model_ms, measured, refused };
        self.table.products.insert(name.clone(), row);
        (self.done)(&self.table, &name, (index, of))
    }
}

/// The lines of a process's output, as they come.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (send, lines) = channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let Ok(line) = line else { break };
                if send.send(line).is_err() {
                    break;
                }
            }
        });
    }
    lines
}
