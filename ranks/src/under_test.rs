//! One rank of a run as a process, for tests: it takes steps, each of which waits for all ranks.
//!
//! `rank-under-test STEPS TIMEOUT_MS [FAIL_AT]`: the last rank fails at step `FAIL_AT`. Each step
//! is a line on standard output, an error a line on standard error. The process ends with 1 after
//! an error, with the code of a rank that left with one, and with 8 if another rank is lost
//! otherwise.
//!
//! With the feature `mpi` and `RANK_UNDER_TEST_MPI` set, a step exchanges values over MPI.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ranks::{Group, JoinOptions, Launch, RanksError};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let steps: u64 = arguments.next().unwrap_or(1);
    let timeout = Duration::from_millis(arguments.next().unwrap_or(2000));
    let say = Arc::new(|line: &str| eprintln!("{line}"));
    let options = JoinOptions { timeout, say, ..JoinOptions::default() };
    let joined = Launch::from_env().and_then(|launch| Group::join(&launch, options));
    let group = match joined {
        Ok(group) => group,
        Err(error) => {
            tell(&error.to_string());
            return ExitCode::from(1);
        }
    };
    println!("rank {} is process {}", group.rank(), std::process::id());
    let result = take_steps(&group, steps, arguments.next());
    // Before it leaves: a launcher may kill a process that takes its time.
    let code = match &result {
        Ok(()) => ExitCode::SUCCESS,
        Err((error, code)) => {
            tell(error);
            ExitCode::from(*code)
        }
    };
    group.leave(result.as_ref().err().map(|(error, code)| (*code, error.as_str())));
    if result.is_ok() {
        println!("done");
    }
    code
}

/// In one piece: mpirun mixes what several ranks write.
fn tell(error: &str) {
    let line = format!("error: {error}\n");
    // Without a reader nothing can be said.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The work of one step with the other ranks.
type Step = Box<dyn Fn(u64) -> Result<(), RanksError>>;

fn take_steps(group: &Group, steps: u64, fail_at: Option<u64>) -> Result<(), (String, u8)> {
    let coded = |error: RanksError| {
        let code = match &error {
            RanksError::Lost(lost) => lost.code.unwrap_or(8),
            _ => 1,
        };
        (error.to_string(), code)
    };
    let (step_with_others, finish) = parts(group).map_err(coded)?;
    for step in 1..=steps {
        group.set_doing(step, "computing");
        thread::sleep(Duration::from_millis(10));
        if fail_at == Some(step) && group.rank() + 1 == group.ranks() {
            return Err(("the disk is full".into(), 1));
        }
        step_with_others(step).map_err(coded)?;
        println!("step {step}");
    }
    finish(steps).map_err(coded)
}

/// The step, and what comes after the last.
fn parts(group: &Group) -> Result<(Step, Step), RanksError> {
    #[cfg(feature = "mpi")]
    if std::env::var_os("RANK_UNDER_TEST_MPI").is_some() {
        return over_mpi::parts(group);
    }
    let own = group.clone();
    let step = move |step| own.barrier(&format!("the gradients of step {step}"));
    Ok((Box::new(step), Box::new(|_| Ok(()))))
}

#[cfg(feature = "mpi")]
mod over_mpi {
    //! Steps that exchange values over MPI.

    use std::sync::Arc;

    use device::Exchange;
    use ranks::{Group, MpiExchange, RanksError};

    use super::Step;

    /// Values for each rank: as many as make MPI send in pieces.
    const VALUES: usize = 100_000;

    pub(super) fn parts(group: &Group) -> Result<(Step, Step), RanksError> {
        let exchange = Arc::new(MpiExchange::start(group.clone())?);
        let (own, exchanging) = (group.clone(), exchange.clone());
        let step = move |step: u64| {
            own.set_doing(step, &format!("waiting for the gradients of step {step}"));
            exchange_values(&own, &*exchanging, step)
        };
        Ok((Box::new(step), Box::new(move |_| exchange.finish().map_err(RanksError::Mpi))))
    }

    fn exchange_values(
        group: &Group,
        exchange: &dyn Exchange,
        step: u64,
    ) -> Result<(), RanksError> {
        let value = |from: usize, to: usize| (step * 100 + from as u64 * 10 + to as u64) as f32;
        // Lengths differ by pair, and one pair exchanges nothing.
        let length = |a: usize, b: usize| if a + b == 1 { 0 } else { VALUES + a * b };
        let me = group.rank();
        let sent: Vec<Vec<f32>> =
            (0..group.ranks()).map(|to| vec![value(me, to); length(me, to)]).collect();
        let mut received: Vec<Vec<f32>> =
            (0..group.ranks()).map(|from| vec![-1.0; length(me, from)]).collect();
        let send: Vec<&[f32]> = sent.iter().map(Vec::as_slice).collect();
        let mut receive: Vec<&mut [f32]> = received.iter_mut().map(Vec::as_mut_slice).collect();
        exchange.exchange(&send, &mut receive);
        if let Some(fault) = exchange.fault() {
            assert!(received.iter().flatten().all(|value| value.is_nan()), "{fault}");
            return Err(group
                .lost()
                .map_or(RanksError::Mpi(fault), |lost| RanksError::Lost(Box::new(lost))));
        }
        for (from, values) in received.iter().enumerate() {
            assert!(values.iter().all(|found| *found == value(from, me)), "from rank {from}");
        }
        Ok(())
    }
}
