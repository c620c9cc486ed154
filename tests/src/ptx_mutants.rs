//! Lists the instructions in the PTX of a training step that the kit's ops and steps execute; or
//! changes single instructions, one at a time, and lists the changes that they do not notice. All
//! runs on the test driver.
//!
//! Stands next to `onegraph` and `gpu-kit` and runs them. `--driver` is a folder with the driver's
//! libraries under NVIDIA's names; behind `--` stand a step's arguments of `inspect plan`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use device::architecture::Architecture;
use kernels::compiled::kernels;

/// The kit's stages, in the order in which they are asked, and their GPU: with one multiprocessor
/// small products have large tiles.
const STAGES: [(&str, &str); 4] =
    [("small-ops", "A100"), ("ops", "A100"), ("ops", "A100:1"), ("step", "A100")];
/// The kernels around a step, which no plan lists.
const ENDS: [&str; 2] = ["take_inputs", "finish_step"];
/// A step with kernels of large tiles and small ones.
const STEP: [&str; 7] =
    ["torchvision_r50", "--set", "train.batch_size=2", "--height", "320", "--width", "512"];
/// A stage that runs so many times as long as without a change does not end.
const MAX_TIMES: u32 = 10;
/// Comparisons and arithmetic whose operands have an order.
const ORDERED: [&str; 9] =
    ["sub.", "setp.l", "setp.g", "selp.", "div.", "rem.", "fma.", "mad.", "shl.b32"];

#[derive(Debug, Parser)]
struct Args {
    /// Folder with libcuda.so.1 and libnccl.so.2.
    #[arg(long)]
    driver: PathBuf,
    /// Tells which instructions are not executed, and changes none.
    #[arg(long)]
    coverage: bool,
    #[arg(long, default_value_t = 200)]
    count: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Gets a line for each mutant.
    #[arg(long, required_unless_present = "coverage")]
    out: Option<PathBuf>,
    /// The file of an earlier run: its survivors, instead of drawn mutants.
    #[arg(long)]
    again: Option<PathBuf>,
    /// The step: arguments of `onegraph inspect plan`.
    #[arg(last = true, default_values = STEP)]
    step: Vec<String>,
}

/// A line of a kernel, and what it becomes.
#[derive(Debug)]
struct Mutant {
    kernel: String,
    line: usize,
    old: String,
    new: String,
}

/// The kernels that the stages launch.
#[derive(Debug, Default)]
struct Plan {
    /// By stage and kernel: numbers of items.
    items: BTreeMap<(usize, String), BTreeSet<usize>>,
    /// By the step's kernels: lines of instructions, and whether they are executed.
    lines: BTreeMap<String, BTreeMap<usize, bool>>,
    /// How long each stage takes.
    times: Vec<Duration>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.coverage {
        return match plan(&args) {
            Ok(plan) => coverage(&plan),
            Err(fault) => failure(&fault),
        };
    }
    let mutants = |plan: &Plan| match &args.again {
        Some(path) => fs::read_to_string(path).map(|told| survivors(&told)),
        None => Ok(draw(&args, plan)),
    };
    let drawn = plan(&args).and_then(|plan| Ok((mutants(&plan).map_err(|e| e.to_string())?, plan)));
    let (mutants, plan) = match drawn {
        Ok(drawn) => drawn,
        Err(fault) => return failure(&fault),
    };
    let (next, told) = (AtomicUsize::new(0), Mutex::new(Vec::<String>::new()));
    std::thread::scope(|scope| {
        for _ in 0..args.threads {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = verdict(&args, &plan, mutant);
                    let Mutant { kernel, line, old, new } = mutant;
                    let text = format!("{verdict}\t{kernel}:{line}\t{old}\t{new}\n");
                    print!("{text}");
                    if let Ok(mut told) = told.lock() {
                        told.push(text);
                    }
                }
            });
        }
    });
    let told = told.into_inner().unwrap_or_default().concat();
    let survivors = told.lines().filter(|line| line.starts_with("survived")).count();
    println!("{} mutants of {} kernels, {survivors} survived", mutants.len(), plan.lines.len());
    let out = args.out.unwrap_or_default();
    match fs::write(&out, told) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => failure(&format!("{}: {fault}", out.display())),
    }
}

fn failure(fault: &str) -> ExitCode {
    eprintln!("error: {fault}");
    ExitCode::FAILURE
}

/// A program in the folder of this one.
fn beside(name: &str) -> Command {
    let path = std::env::current_exe().map(|program| program.with_file_name(name));
    Command::new(path.unwrap_or_default())
}

/// The kit's stage, on the driver.
fn kit(args: &Args, (stage, gpu): (&str, &str)) -> Command {
    let mut command = beside("gpu-kit");
    command.args(["work", "--images", ".", "--annotations", ".", stage]);
    command.env("LD_LIBRARY_PATH", &args.driver).env("DRIVER_GPUS", gpu).stderr(Stdio::null());
    command
}

/// The kernels that the step launches, as `onegraph inspect plan` lists them.
fn launched(args: &Args) -> Result<Vec<String>, String> {
    let mut command = beside("onegraph");
    command.args(["inspect", "plan", "--device", "cuda"]).args(&args.step);
    let told = command.output().map_err(|e| format!("onegraph: {e}"))?;
    let text = String::from_utf8_lossy(&told.stdout);
    let Some((_, list)) = text.split_once(" different kernels:\n") else {
        return Err(format!("inspect plan: {}", String::from_utf8_lossy(&told.stderr)));
    };
    let kernel = |line: &str| line.split_whitespace().nth(1).map(String::from);
    let listed = list.lines().map_while(kernel);
    Ok(listed.chain(ENDS.map(String::from)).collect())
}

/// Runs each stage once, unchanged: its items, their launches, and the lines that they execute.
fn plan(args: &Args) -> Result<Plan, String> {
    let say = |e: std::io::Error| e.to_string();
    let launched = launched(args)?;
    let lines = launched.into_iter().map(|kernel| (kernel, BTreeMap::new())).collect();
    let mut plan = Plan { lines, ..Plan::default() };
    for (number, &stage) in STAGES.iter().enumerate() {
        let folder = tempfile::tempdir().map_err(say)?;
        // Launches and the kit's own lines in one file, in their order.
        let (log, covered) = (folder.path().join("log"), folder.path().join("covered"));
        let options = || fs::OpenOptions::new().create(true).append(true).open(&log);
        let mut command = kit(args, stage);
        command.env("DRIVER_TRACE", &log).env("DRIVER_COVERAGE", &covered);
        let since = Instant::now();
        let status = command.stdout(options().map_err(say)?).status().map_err(say)?;
        plan.times.push(since.elapsed());
        if !status.success() {
            return Err(format!("the stage {stage:?} fails without a change: {status}"));
        }
        let mut item = 0;
        for line in fs::read_to_string(&log).map_err(say)?.lines() {
            if let Some(begun) = line.strip_prefix("::item ") {
                item = begun.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
            } else if let Some(kernel) = line.strip_prefix("launch ") {
                plan.items.entry((number, kernel.to_string())).or_default().insert(item);
            }
        }
        for line in fs::read_to_string(&covered).map_err(say)?.lines() {
            let mut words = line.split(' ');
            let (kernel, at) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            if let (Some(lines), Ok(at)) = (plan.lines.get_mut(kernel), at.parse()) {
                *lines.entry(at).or_default() |= words.next() != Some("0");
            }
        }
    }
    Ok(plan)
}

/// Prints the instructions that no stage executes: for each kernel how many of how many, and the
/// ranges of their lines.
fn coverage(plan: &Plan) -> ExitCode {
    let (mut all, mut missing) = (0, 0);
    for (kernel, lines) in &plan.lines {
        let left = lines.values().filter(|executed| !**executed).count();
        let lines: Vec<(&usize, &bool)> = lines.iter().collect();
        let runs = lines.chunk_by(|a, b| a.1 == b.1).filter(|run| !run[0].1);
        let ranges = runs.map(|run| match run {
            [(first, _), .., (last, _)] => format!(" {first}-{last}"),
            _ => format!(" {}", run[0].0),
        });
        match (lines.len(), ranges.collect::<String>()) {
            (0, _) => println!("{kernel} is not launched"),
            (_, ranges) if ranges.is_empty() => {}
            (of, ranges) => println!("{kernel}: {left} of {of}, lines{ranges}"),
        }
        (all, missing) = (all + lines.len(), missing + left);
    }
    let share = 100.0 * (all - missing) as f64 / all.max(1) as f64;
    println!("{missing} of {all} instructions are not executed; {share:.1} % are");
    ExitCode::SUCCESS
}

/// Mutants in equal shares per kernel, of executed lines, drawn by the seed.
fn draw(args: &Args, plan: &Plan) -> Vec<Mutant> {
    let mut texts = BTreeMap::new();
    let sources = kernels().manifest().sources.iter();
    for source in sources.filter(|source| source.architecture == Architecture::COMPUTE_80) {
        let text = kernels().ptx(source).to_string();
        let is_run = |lines: &BTreeMap<usize, bool>| lines.values().any(|executed| *executed);
        for (kernel, _) in plan.lines.iter().filter(|(_, lines)| is_run(lines)) {
            if text.contains(&format!(".entry {kernel}(")) {
                texts.insert(kernel.clone(), text.clone());
            }
        }
    }
    let mut random = args.seed;
    let mut below = |end: usize| {
        // Steele et al. 2014, SplitMix.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    };
    let mut mutants: Vec<Mutant> = Vec::new();
    let kernels: Vec<(&String, &String)> = texts.iter().collect();
    let mut tries = 0;
    while mutants.len() < args.count && tries < 100 * args.count && !kernels.is_empty() {
        // Kernels in turn.
        let (kernel, text) = kernels[mutants.len() % kernels.len()];
        tries += 1;
        let executed = plan.lines[kernel].iter().filter(|(_, executed)| **executed);
        let lines: Vec<usize> = executed.map(|(line, _)| *line).collect();
        let line = lines[below(lines.len())];
        let old = text.lines().nth(line - 1).unwrap_or_default();
        let mut changed = changes(old);
        if changed.is_empty() {
            continue;
        }
        let new = changed.swap_remove(below(changed.len()));
        let is_new = mutants.iter().all(|m| (&m.kernel, m.line, &m.new) != (kernel, line, &new));
        if is_new {
            mutants.push(Mutant { kernel: kernel.clone(), line, old: old.trim().into(), new });
        }
    }
    mutants
}

/// The survivors that an earlier run reported.
fn survivors(told: &str) -> Vec<Mutant> {
    let of_line = |line: &str| {
        // The old text may hold tabs.
        let (head, new) = line.strip_prefix("survived\t")?.rsplit_once('\t')?;
        let (place, old) = head.split_once('\t')?;
        let (kernel, at) = place.split_once(':')?;
        let line = at.parse().ok()?;
        Some(Mutant { kernel: kernel.into(), line, old: old.into(), new: new.into() })
    };
    told.lines().filter_map(of_line).collect()
}

/// The lines that may replace a line: nothing, another constant, operands in another order.
fn changes(line: &str) -> Vec<String> {
    let line = line.trim();
    let Some(body) = line.trim_matches(['{', '}']).trim().strip_suffix(';') else { return vec![] };
    if body.contains(';') || body.starts_with("ret") || body.starts_with('.') {
        return vec![];
    }
    let mut all = vec![line.replace(&format!("{body};"), "").trim().to_string()];
    let (opcode, operands) = body.split_once(['\t', ' ']).unwrap_or((body, ""));
    let (opcode, operands) = if opcode.starts_with('@') {
        operands.trim().split_once(['\t', ' ']).unwrap_or((operands, ""))
    } else {
        (opcode, operands)
    };
    if opcode.starts_with("bra") {
        return all;
    }
    // Operands are the end of the instruction.
    let head = body[..body.len() - operands.len()].trim_end().replace('\t', " ");
    let with = |list: &[&str]| line.replace(body, &format!("{head} {}", list.join(", ")));
    let list: Vec<&str> = operands.split(", ").map(str::trim).collect();
    for (i, operand) in list.iter().enumerate() {
        let other = match operand.parse::<i64>() {
            Ok(number) => (number + 1).to_string(),
            Err(_) => {
                match operand.strip_prefix("0f").and_then(|b| u32::from_str_radix(b, 16).ok()) {
                    Some(bits) => format!("0f{:08X}", bits ^ 1 << 23),
                    None => match operand.split_once('+').filter(|_| operand.starts_with('[')) {
                        Some((base, offset)) => match offset.trim_end_matches(']').parse::<i64>() {
                            Ok(number) => format!("{base}+{}]", number + 4),
                            Err(_) => continue,
                        },
                        None => continue,
                    },
                }
            }
        };
        let mut changed = list.clone();
        changed[i] = &other;
        all.push(with(&changed));
    }
    let is_ordered = ORDERED.iter().any(|ordered| opcode.starts_with(ordered));
    if is_ordered && list.len() >= 3 && list[1..].iter().all(|o| o.starts_with('%')) {
        let mut changed = list.clone();
        let last = if opcode.starts_with("selp") { 2 } else { list.len() - 1 };
        changed.swap(last - 1, last);
        if changed != list {
            all.push(with(&changed));
        }
    }
    all
}

/// The stage that notices the mutant, or `survived`.
fn verdict(args: &Args, plan: &Plan, mutant: &Mutant) -> String {
    let Ok(folder) = tempfile::tempdir() else { return "no folder".into() };
    for (number, &(stage, gpu)) in STAGES.iter().enumerate() {
        let Some(items) = plan.items.get(&(number, mutant.kernel.clone())) else { continue };
        let items: Vec<String> = items.iter().map(usize::to_string).collect();
        let findings = folder.path().join("findings");
        let mut command = kit(args, (stage, gpu));
        command.args(["--only", &items.join(",")]).stdout(Stdio::null());
        command.env("DRIVER_EDIT", format!("{}:{}={}", mutant.kernel, mutant.line, mutant.new));
        command.env("DRIVER_REPORT", &findings).env("DRIVER_CHECKS", "races");
        let Ok(mut child) = command.spawn() else { return "not started".into() };
        let since = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                _ if since.elapsed() > MAX_TIMES * plan.times[number] => {
                    let _ = (child.kill(), child.wait());
                    break None;
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let found = fs::read_to_string(&findings).unwrap_or_default();
        let fault = found.lines().find(|line| !line.starts_with("leak: "));
        match (status, fault) {
            (_, Some(_)) => return format!("{stage}: fault"),
            (None, _) => return format!("{stage}: hangs"),
            (Some(status), _) if !status.success() => return format!("{stage}: result"),
            _ => {}
        }
    }
    "survived".into()
}

#[test]
fn each_kind_of_change_is_made() {
    assert_eq!(changes("\tadd.s32 \t%r1, %r2, 4;"), ["", "add.s32 %r1, %r2, 5;"]);
    let moved = ["", "ld.param.u64 %rd4, [%rd43+516];"];
    assert_eq!(changes("ld.param.u64 \t%rd4, [%rd43+512];"), moved);
    assert_eq!(changes("sub.f32 \t%f1, %f2, %f3;"), ["", "sub.f32 %f1, %f3, %f2;"]);
    assert_eq!(changes("bar.sync \t0;"), ["", "bar.sync 1;"]);
    assert_eq!(changes("@%p1 bra \t$L__BB0_15;"), [""]);
    assert_eq!(changes("ret;"), Vec::<String>::new());
}
