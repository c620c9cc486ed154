//! Checks on the first GPU of this machine, or on the emulated driver: one line each, and exit code
//! 1 if one failed. `tools/gpu.sh` runs them.

use std::error::Error;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use device::cuda::{CudaDevice, NcclOptions, nccl_id, nccl_version};
use device::{
    Access, AllReduce, Arg, DType, Device, DeviceError, DevicePtr, Launch, Precision, Ranks, Task,
    Touch,
};
use graph::capture::{CapturedGraph, LaunchList, Work, capture};
use kernels::case::{OpCase, check_on_device};
use kernels::cpu::HostTensor;
use kernels::ops::cases;
use tests::step::CHECKS;

/// Environment variable that passes the progress to a new process after the previous one lost its
/// device.
const STATE: &str = "GPU_CHECKS_STATE";
/// Ops with more FLOPs than this run once instead of twice.
const LARGE_FLOPS: u64 = 20_000_000_000;
/// Number of replays of the captured all-reduces; each replay has different values.
const REPLAYS: usize = 3;
/// Elements per all-reduce. A bucket of 25 MiB has 13 million fp16 elements; an odd number is a
/// harder case.
const SUMMED: usize = (4 << 20) + 3;

/// Checks onegraph on this machine's first GPU.
#[derive(Debug, Parser)]
#[command(name = "gpu-checks", version)]
struct Args {
    #[command(subcommand)]
    what: What,
    /// Run only checks whose names contain one of these texts.
    #[arg(long, global = true)]
    only: Vec<String>,
    /// Start no further check after this many seconds.
    #[arg(long, global = true)]
    seconds: Option<u64>,
    /// Time limit per check in seconds: a check that takes longer fails, and its op is not tested
    /// again.
    #[arg(long, global = true, default_value_t = 30)]
    each: u64,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Check memory, every module of kernels, and a captured graph with one kernel.
    Device,
    /// Compare every op case with the CPU, forward and backward; repeated runs must be
    /// bit-identical.
    Ops {
        /// Run only cases whose FLOPs and memory traffic in bytes do not exceed this number.
        #[arg(long, default_value_t = u64::MAX)]
        most: u64,
    },
    /// Check entire training steps.
    Step,
    /// Check all-reduces over a group of one rank, by NCCL, in a captured graph.
    Sums,
}

/// The result of a check: a figure, or the error.
type Found = Result<String, Box<dyn Error>>;

/// Progress in the list of checks.
#[derive(Debug, Default)]
struct State {
    /// Number of the next check.
    next: usize,
    passed: usize,
    failed: usize,
    /// Number of checks that were not run, because time was up or their op had hung before.
    not_run: usize,
    /// The ops that hung.
    hung: Vec<String>,
    /// Start time of the running check, with its op.
    running: Option<(Instant, String)>,
}

/// The list of checks.
struct Checks {
    device: Arc<CudaDevice>,
    args: Args,
    begin: Instant,
    state: Arc<Mutex<State>>,
    count: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let device = match kernels::compiled::open(0, |sentence| println!("{sentence}")) {
        Ok(device) => Arc::new(device),
        Err(fault) => {
            eprintln!("error: {fault}");
            return ExitCode::FAILURE;
        }
    };
    let state = Arc::new(Mutex::new(State::of_environment()));
    let each = Duration::from_secs(args.each);
    let watched = state.clone();
    std::thread::spawn(move || watch(&watched, each));
    let begin = Instant::now();
    let mut checks = Checks { device, args, begin, state, count: 0 };
    match checks.args.what {
        What::Device => check_device(&mut checks),
        What::Ops { most } => check_ops(&mut checks, most),
        What::Step => check_step(&mut checks),
        What::Sums => check_sums(&mut checks),
    }
    let state = lock(&checks.state);
    let all = state.passed + state.failed + state.not_run;
    let left = match state.not_run {
        0 => String::new(),
        left => format!(", {left} were not run"),
    };
    println!("{} of {all} passed{left}", state.passed);
    ExitCode::from(u8::from(state.failed > 0))
}

impl Checks {
    /// Runs the next check, unless an earlier process has run it, and prints its result.
    fn check(&mut self, name: &str, work: impl FnOnce() -> Found) {
        let number = self.count;
        self.count += 1;
        let only = &self.args.only;
        let is_asked = only.is_empty() || only.iter().any(|part| name.contains(part.as_str()));
        let mut state = lock(&self.state);
        if number < state.next || !is_asked {
            return;
        }
        state.next = number + 1;
        let op = name.split(" (").next().unwrap_or(name).replace(' ', "_");
        let limit = self.args.seconds.map(Duration::from_secs);
        if limit.is_some_and(|limit| self.begin.elapsed() >= limit) || state.hung.contains(&op) {
            state.not_run += 1;
            return;
        }
        // Print the name first: if the process dies in this check, the name is its last output.
        print!("{name} ... ");
        let _ = std::io::stdout().flush();
        state.running = Some((Instant::now(), op));
        drop(state);
        let found = catch_unwind(AssertUnwindSafe(work));
        let mut state = lock(&self.state);
        state.running = None;
        let fault = match found {
            Ok(Ok(figure)) => {
                state.passed += 1;
                println!("ok {figure}");
                return;
            }
            Ok(Err(fault)) => fault.to_string(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                text.or(panic.downcast_ref().copied()).unwrap_or("a panic").to_string()
            }
        };
        state.failed += 1;
        let fault = fault.replace('\n', "; ");
        println!("\nFAILED {name}: {}", fault.trim_start_matches(&format!("{name}: ")));
        if let Err(lost) = self.device.synchronize() {
            println!("the device is lost: {lost}");
            state.restart_process();
        }
    }
}

impl State {
    fn of_environment() -> Self {
        let text = std::env::var(STATE).unwrap_or_default();
        let mut words = text.split(' ');
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let [next, passed, failed, not_run] = [number(), number(), number(), number()];
        let hung = words.map(String::from).collect();
        Self { next, passed, failed, not_run, hung, running: None }
    }

    /// Replaces this process by a new process, which opens the device again and continues with the
    /// next check.
    fn restart_process(&self) {
        let Self { next, passed, failed, not_run, hung, .. } = self;
        let counts = format!("{next} {passed} {failed} {not_run}");
        let words = [vec![counts], hung.clone()].concat().join(" ");
        let mut anew = Command::new(std::env::current_exe().unwrap_or_default());
        let fault = anew.args(std::env::args_os().skip(1)).env(STATE, words).exec();
        eprintln!("error: this program cannot be restarted: {fault}");
        std::process::exit(1);
    }
}

/// Abandons a check that takes longer than `each`.
fn watch(state: &Mutex<State>, each: Duration) {
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let mut state = lock(state);
        if let Some((_, op)) = state.running.take_if(|(begin, _)| begin.elapsed() > each) {
            println!("\nFAILED {op}: hung for {} s", each.as_secs());
            state.failed += 1;
            state.hung.push(op);
            state.restart_process();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device's memory, every module of kernels, and a graph with one kernel.
fn check_device(checks: &mut Checks) {
    let device = checks.device.clone();
    checks.check("memory", || {
        let memory = device.memory()?;
        let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
        let (free, total) = (gib(memory.free), gib(memory.total));
        Ok(format!("{}, {free:.1} of {total:.1} GiB free", device.name()))
    });
    let mut modules = None;
    checks.check("loading all modules", || {
        let begin = Instant::now();
        let loaded = modules.insert(device.load_kernels(None));
        let remarks: usize = loaded.iter().map(|module| module.remarks.len()).sum();
        let (count, seconds) = (loaded.len(), begin.elapsed().as_secs_f64());
        Ok(format!(
            "{count} in {seconds:.1} s, {remarks} kernels take other registers or local memory \
             than planned"
        ))
    });
    // If an earlier process ran this check, load the modules again, so that their checks keep their
    // numbers.
    for module in modules.unwrap_or_else(|| device.load_kernels(None)) {
        checks.check(&module.path, || module.result.map(|()| String::new()).map_err(Box::from));
    }
    checks.check("a graph of one kernel", || check_kernel(device.as_ref()));
}

/// Replays a captured ReLU gradient on two fp16 values: dy = [1.0, 2.0] and y = [1.0, -1.0], so
/// only the first passes.
fn check_kernel(device: &dyn Device) -> Found {
    let [dy, y, g] = [device.alloc(4)?, device.alloc(4)?, device.alloc(4)?];
    let buffer = |ptr, access| Arg::Buffer(Touch { ptr, bytes: 4, access });
    let relu = Launch::over("relu_mask_f16", 2)
        .arg(buffer(dy, Access::Read))
        .arg(buffer(y, Access::Read))
        .arg(buffer(g, Access::Write))
        .len(2);
    let mut list = LaunchList::default();
    list.push(Work::new("gradient of the ReLU", vec![relu.into()]));
    let graph = capture(device, &list)?;
    let halves = |values: [u16; 2]| values.map(u16::to_ne_bytes).concat();
    let inputs = [(dy, halves([0x3c00, 0x4000])), (y, halves([0x3c00, 0xbc00]))];
    let found = replayed(device, &graph, &inputs, &[g])?;
    if found != [halves([0x3c00, 0])] {
        return Err(format!("the replay made {found:?}").into());
    }
    [dy, y, g].into_iter().try_for_each(|ptr| device.free(ptr))?;
    Ok(String::new())
}

/// Uploads the inputs, replays the graph, and downloads from `outputs` as many bytes as were
/// uploaded.
fn replayed(
    device: &dyn Device,
    graph: &CapturedGraph,
    inputs: &[(DevicePtr, Vec<u8>)],
    outputs: &[DevicePtr],
) -> Result<Vec<Vec<u8>>, DeviceError> {
    let stream = device.stream()?;
    for (ptr, bytes) in inputs {
        let staging = device.alloc_pinned(bytes.len())?;
        device.write_pinned(staging, 0, bytes);
        device.upload(stream, *ptr, staging, 0, bytes.len())?;
        // The staging memory must not change until the copy is done.
        device.synchronize()?;
        device.free_pinned(staging)?;
    }
    device.replay(graph.handle, stream)?;
    let download = |(to, (_, input)): (&DevicePtr, &(_, Vec<u8>))| {
        let mut bytes = vec![0; input.len()];
        device.download(stream, *to, &mut bytes).map(|()| bytes)
    };
    outputs.iter().zip(inputs).map(download).collect()
}

/// Compares all cases with the CPU reference whose FLOPs and memory traffic in bytes do not exceed
/// `most`.
fn check_ops(checks: &mut Checks, most: u64) {
    let device = checks.device.clone();
    for case in cases().iter().filter(|case| size(case) <= most) {
        checks.check(&case.to_string(), || {
            let report = check_on_device(case, device.as_ref(), Precision::Fp16, LARGE_FLOPS)?;
            Ok(format!("{} ops, worst {:.3} of what is allowed", report.ops, report.worst))
        });
    }
}

fn size(case: &OpCase) -> u64 {
    let descs = |tensors: &[HostTensor]| tensors.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let (inputs, updates) = (descs(&case.inputs), descs(&case.updates));
    let outputs = case.op.infer(&inputs, &updates).expect("a case fits its op");
    let cost = case.op.cost(&inputs, &outputs);
    cost.flops.max(cost.bytes)
}

/// Captures and replays entire steps of `micro`, one check at a time, since concurrent checks on
/// one GPU would interfere.
fn check_step(checks: &mut Checks) {
    let device = checks.device.clone();
    for (name, check) in CHECKS {
        checks.check(name, || {
            check(&|_seed| device.clone());
            Ok(String::new())
        });
    }
}

/// All-reduces of fp16 and f32 in a group of one rank; after the rank has left the group, a replay
/// must fail.
fn check_sums(checks: &mut Checks) {
    let (major, minor) = match nccl_version() {
        Ok(version) => version,
        Err(why) => {
            println!("SKIPPED: {why}");
            std::process::exit(0);
        }
    };
    let device = checks.device.clone();
    checks.check("sums", || {
        let options = NcclOptions { nvls: false, timeout: Duration::from_secs(30) };
        device.join(Ranks::SINGLE, &nccl_id()?, &options)?;
        let mut list = LaunchList::default();
        let mut sums = Vec::new();
        for dtype in [DType::F16, DType::F32] {
            let bytes = SUMMED * dtype.size_bytes();
            let (from, to) = (device.alloc(bytes)?, device.alloc(bytes)?);
            sums.push(AllReduce { to, from, len: SUMMED, dtype });
        }
        for &sum in &sums {
            list.push(Work::new("a sum over ranks", vec![Task::AllReduce(sum)]));
        }
        let graph = capture(device.as_ref(), &list)?;
        for replay in 0..REPLAYS {
            let inputs: Vec<_> = sums.iter().map(|sum| (sum.from, values(sum, replay))).collect();
            let outputs: Vec<_> = sums.iter().map(|sum| sum.to).collect();
            let found = replayed(device.as_ref(), &graph, &inputs, &outputs)?;
            if inputs.iter().zip(&found).any(|((_, given), found)| given != found) {
                return Err(format!("replay {}: the all-reduce changed a value", replay + 1).into());
            }
        }
        device.abort()?;
        if device.replay(graph.handle, device.stream()?).is_ok() {
            return Err("a graph was replayed after leaving its NCCL group".into());
        }
        let ptrs = sums.iter().flat_map(|sum| [sum.from, sum.to]);
        ptrs.into_iter().try_for_each(|ptr| device.free(ptr))?;
        Ok(format!("NCCL {major}.{minor}: {REPLAYS} bit-identical replays, then left the group"))
    });
}

/// Bytes of positive fp16 values, or of integers in f32, which differ between replays.
fn values(sum: &AllReduce, replay: usize) -> Vec<u8> {
    let value = |i: usize| ((i * 7 + replay * 13) % 2039) as u16;
    let all = 0..sum.len;
    match sum.dtype {
        DType::F16 => all.flat_map(|i| value(i).to_ne_bytes()).collect(),
        _ => all.flat_map(|i| f32::from(value(i)).to_ne_bytes()).collect(),
    }
}
