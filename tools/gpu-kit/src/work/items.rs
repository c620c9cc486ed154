//! Runs the items of a stage: each is named, run, and its result reported; after a failure the
//! device is probed.

use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::Device;
use serde_json::Value;

use super::super::items::group;
use super::super::protocol::{LOST, Line};
use super::{WorkArgs, said};

/// The items of this process.
#[derive(Debug)]
pub(super) struct Items {
    /// The device to probe: that of the last item.
    device: Arc<dyn Device>,
    from: usize,
    only: Vec<usize>,
    skip: Vec<String>,
    /// Deadline for starting items.
    until: Option<Instant>,
    next: usize,
    passed: usize,
    failed: usize,
    not_run: usize,
}

impl Items {
    pub(super) fn new(device: Arc<dyn Device>, args: &WorkArgs) -> Self {
        let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let (only, skip) = (args.only.clone(), args.skip.clone());
        Self {
            device,
            from: args.from,
            only,
            skip,
            until,
            next: 0,
            passed: 0,
            failed: 0,
            not_run: 0,
        }
    }

    pub(super) fn device(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    /// The device that the next items run on.
    pub(super) fn use_device(&mut self, device: Arc<dyn Device>) {
        self.device = device;
    }

    /// How many items there are in all.
    pub(super) fn of(&self, count: usize) {
        println!("{}", Line::Of(count));
    }

    /// Runs the next item, unless an earlier process did. The item returns its figures or its
    /// fault, or panics with it.
    ///
    /// Ends the process if the item failed and the device no longer responds.
    pub(super) fn item(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Self) -> Result<Value, String>,
    ) {
        let item = self.next;
        self.next += 1;
        if item < self.from || !self.only.is_empty() && !self.only.contains(&item) {
            return;
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            self.not_run += 1;
            return;
        }
        println!("{}", Line::Begin(item, name.to_string()));
        if self.skip.iter().any(|skipped| skipped == group(name)) {
            let why = format!("too many processes ended in items of {}", group(name));
            println!("{}", Line::Skipped(item, why));
            return;
        }
        let done = panic::catch_unwind(panic::AssertUnwindSafe(|| work(self)));
        let why = match done {
            Ok(Ok(figures)) => {
                println!("{}", Line::Passed(item, figures));
                self.passed += 1;
                return;
            }
            Ok(Err(why)) => why,
            Err(payload) => said(payload.as_ref()).to_string(),
        };
        println!("{}", Line::Failed(item, why));
        self.failed += 1;
        if let Err(fault) = self.device.synchronize() {
            eprintln!("error: the device is lost after this: {fault}");
            // Drop nothing: even that may hang on a lost device.
            std::process::exit(LOST.into());
        }
    }

    /// All items are done.
    pub(super) fn end(self) -> ExitCode {
        println!("{}", Line::End);
        let Self { passed, failed, not_run, .. } = self;
        let all = passed + failed + not_run;
        let late = if not_run > 0 { format!(", {not_run} had no time") } else { String::new() };
        match failed {
            0 => {
                println!("figure: {passed} of {all} passed{late}");
                ExitCode::SUCCESS
            }
            _ => {
                eprintln!("error: {failed} of {all} failed{late}");
                ExitCode::FAILURE
            }
        }
    }
}
