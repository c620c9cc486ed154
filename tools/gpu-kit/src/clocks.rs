//! Clocks, power and temperature of the GPU: once as text, and sampled during every stage.
//!
//! A figure without its clocks cannot be compared with another. Nothing here changes a setting.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Map, Value, json};

const TOOL: &str = "nvidia-smi";
/// The sampled values, and their names in the report.
const SAMPLED: [(&str, &str); 5] = [
    ("clocks.sm", "sm_mhz"),
    ("clocks.mem", "memory_mhz"),
    ("power.draw", "power_w"),
    ("temperature.gpu", "temperature_c"),
    ("memory.used", "memory_mib"),
];
/// Rare enough to cost nothing, frequent enough for a bench of a few seconds.
const SAMPLE_MS: u32 = 1000;
/// Queried once, each by itself: a driver that does not know one still answers the others.
const ASKED: [&str; 5] = [
    "name,driver_version,vbios_version,pstate,temperature.gpu",
    "clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,clocks.applications.graphics",
    "power.draw,power.limit,power.default_limit,power.max_limit",
    "ecc.mode.current,mig.mode.current,persistence_mode,compute_mode",
    "memory.total,memory.used,pcie.link.gen.current,pcie.link.width.current",
];

/// One line of samples, in the order of [`SAMPLED`].
type Sample = (Instant, [f64; SAMPLED.len()]);

/// Samples that are collected as long as this lives.
#[derive(Debug)]
pub(super) struct Clocks {
    tool: Child,
    samples: Arc<Mutex<Vec<Sample>>>,
}

/// The stage `clocks`: prints the tool's report on the first GPU.
pub(super) fn describe() -> ExitCode {
    let ask = |arguments: &[&str]| {
        let asked = Command::new(TOOL).args(arguments).stdin(Stdio::null()).output();
        asked.map(|output| {
            let both = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&both).trim().to_string())
        })
    };
    match ask(&["--list-gpus"]) {
        Err(fault) => {
            println!("SKIPPED: {TOOL}: {fault}");
            return ExitCode::SUCCESS;
        }
        Ok((false, said)) => {
            println!("SKIPPED: {TOOL} fails: {}", said.lines().next().unwrap_or("in silence"));
            return ExitCode::SUCCESS;
        }
        Ok((true, gpus)) => println!("{gpus}"),
    }
    let mut first = None;
    for fields in ASKED {
        let query = format!("--query-gpu={fields}");
        let asked = ask(&["--id=0", &query, "--format=csv"]);
        let (_, said) = asked.unwrap_or_else(|e| (false, e.to_string()));
        println!("{said}");
        first.get_or_insert(said);
    }
    for more in ["--query-compute-apps=pid,process_name,used_memory", "-q -d CLOCK,PERFORMANCE"] {
        let arguments: Vec<&str> = more.split(' ').collect();
        let format = more.starts_with("--query").then_some("--format=csv");
        let all: Vec<&str> = arguments.into_iter().chain(format).collect();
        println!("{}", ask(&all).map_or_else(|e| e.to_string(), |(_, said)| said));
    }
    let gpu = first.as_deref().and_then(|said| said.lines().last()).unwrap_or("no answer");
    println!("figure: {gpu}");
    ExitCode::SUCCESS
}

impl Clocks {
    /// Starts sampling; `None` if the tool is missing.
    pub(super) fn start() -> Option<Self> {
        let fields: Vec<&str> = SAMPLED.iter().map(|(field, _)| *field).collect();
        let mut command = Command::new(TOOL);
        command.arg("--id=0").arg(format!("--query-gpu={}", fields.join(",")));
        command.args(["--format=csv,noheader,nounits", &format!("--loop-ms={SAMPLE_MS}")]);
        Self::read(&mut command)
    }

    fn read(command: &mut Command) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut tool = command.spawn().ok()?;
        let out = BufReader::new(tool.stdout.take()?);
        let samples = Arc::new(Mutex::new(Vec::new()));
        let shared = samples.clone();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some(sample) = sample(&line) {
                    let mut samples = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    samples.push((Instant::now(), sample));
                }
            }
        });
        Some(Self { tool, samples })
    }

    /// Minimum, median and maximum of each, over the samples since `begin`; null without any.
    pub(super) fn since(&self, begin: Instant) -> Value {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let among: Vec<&Sample> = samples.iter().filter(|(at, _)| *at >= begin).collect();
        if among.is_empty() {
            return Value::Null;
        }
        let of = |which: usize| {
            let mut values: Vec<f64> = among.iter().map(|(_, sample)| sample[which]).collect();
            values.sort_by(f64::total_cmp);
            json!([values[0], values[values.len() / 2], values[values.len() - 1]])
        };
        let each = SAMPLED.iter().enumerate();
        let object: Map<String, Value> =
            each.map(|(which, (_, name))| (name.to_string(), of(which))).collect();
        Value::Object(object)
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.tool.kill();
        let _ = self.tool.wait();
    }
}

/// The values of a line; a value that the GPU does not report invalidates the line.
fn sample(line: &str) -> Option<[f64; SAMPLED.len()]> {
    let values: Vec<f64> =
        line.split(',').map(|value| value.trim().parse().unwrap_or(f64::NAN)).collect();
    values.try_into().ok().filter(|values: &[f64; SAMPLED.len()]| values[0].is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_up() {
        let begin = Instant::now();
        let mut command = Command::new("sh");
        let lines = "echo 1980, 2619, 300.5, 40, 100; echo 345, 2619, [N/A], 41, 100; \
                     echo 1755, 2619, 690.0, 60, 900; echo a warning; sleep 60";
        let clocks = Clocks::read(command.args(["-c", lines])).expect("sh starts");
        let mut value = clocks.since(begin);
        while value["sm_mhz"] != json!([345.0, 1755.0, 1980.0]) {
            assert!(begin.elapsed().as_secs() < 30, "{value}");
            std::thread::sleep(std::time::Duration::from_millis(10));
            value = clocks.since(begin);
        }
        assert_eq!(value["temperature_c"], json!([40.0, 41.0, 60.0]));
        assert_eq!(clocks.since(Instant::now()), Value::Null);
    }
}
