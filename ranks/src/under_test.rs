//! One rank of a run as a process, for tests: it takes steps of which each waits for all ranks.
//!
//! `rank-under-test STEPS TIMEOUT_MS [FAIL_AT]`: the last rank fails at step `FAIL_AT`. Each step
//! is a line on the standard output, an error one on the other. It ends with 8 if another rank is
//! lost, else with 1 after an error.

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
            eprintln!("error: {error}");
            return ExitCode::from(1);
        }
    };
    let result = take_steps(&group, steps, arguments.next());
    group.leave(result.as_ref().err().map(|(error, _)| error.as_str()));
    match result {
        Ok(()) => {
            println!("done");
            ExitCode::SUCCESS
        }
        Err((error, code)) => {
            eprintln!("error: {error}");
            ExitCode::from(code)
        }
    }
}

fn take_steps(group: &Group, steps: u64, fail_at: Option<u64>) -> Result<(), (String, u8)> {
    for step in 1..=steps {
        group.set_doing(step, "computing");
        thread::sleep(Duration::from_millis(10));
        if fail_at == Some(step) && group.rank() + 1 == group.ranks() {
            return Err(("the disk is full".into(), 1));
        }
        group.barrier(&format!("the gradients of step {step}")).map_err(|error| {
            let code = if matches!(error, RanksError::Lost(_)) { 8 } else { 1 };
            (error.to_string(), code)
        })?;
        println!("step {step}");
    }
    Ok(())
}
