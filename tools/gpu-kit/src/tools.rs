//! The stages: the program and arguments of each, on a GPU or scaled down.

use std::path::{Path, PathBuf};
use std::time::Duration;

use device::cuda::nccl_variables;

use super::RunArgs;
use super::items::ItemLimits;
use super::program::{Program, SECONDS, absolute, in_path};
use super::reading::Reading;
use super::stage::Stage;

/// Time that a bench needs besides its timed seconds: drawing, planning, capturing, warming up.
const BENCH_START_SECONDS: u64 = 35;
/// Exit code of `compute-sanitizer` if it found something.
const SANITIZER_FOUND: &str = "9";
/// Counters of one pass over a replay: time, tensor pipe, issue, and bytes of DRAM and L2.
const NCU_METRICS: &str = "gpu__time_duration.sum,\
    sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active,\
    sm__inst_executed_pipe_tensor.sum,\
    smsp__issue_active.avg.pct_of_peak_sustained_active,\
    sm__warps_active.avg.pct_of_peak_sustained_active,\
    dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,\
    launch__registers_per_thread,launch__grid_size,launch__waves_per_multiprocessor";
/// More nodes than a step has, which are 498, and not many of a second one: each is replayed once
/// per pass.
const NCU_NODES: &str = "540";
/// Kernels whose first launch is examined in full.
const NCU_KERNELS: [&str; 12] = [
    "conv2d_f16_large",
    "conv2d_grad_input_f16_large",
    "conv2d_grad_weight_f16_large",
    "conv2d_f16_small",
    "conv2d_grad_weight_f16_small",
    "stem_f16_small",
    "conv2d_grad_weight_f16_padded_small",
    "roi_align_f16x8",
    "roi_align_grad_tiles_f16x8",
    "nms_proposals_compare",
    "relu_mask_f16",
    "sum_f16",
];
const NCU_SECTIONS: [&str; 8] = [
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
    "InstructionStats",
    "LaunchStats",
    "Occupancy",
];
/// Files of baselines in the scratch folder.
const CEILINGS: &str = "ceilings.json";
const SHAPES: &str = "shapes.json";
/// Files of `bench` there, without and with sums over ranks.
const PLAIN: &str = "bench-12x800x1344.json";
const ALL_REDUCE: &str = "bench-all-reduce.json";
/// Files of `bench nodes` there.
const NODES: &str = "nodes.json";
const TIMELINE: &str = "timeline.svg";

/// Where the programs and the data are.
#[derive(Debug)]
pub(super) struct Tools {
    quick: bool,
    own: PathBuf,
    onegraph: PathBuf,
    bench: PathBuf,
    python: PathBuf,
    peers: PathBuf,
    sanitizer: Option<PathBuf>,
    ncu: Option<PathBuf>,
    images: PathBuf,
    annotations: PathBuf,
    scratch: PathBuf,
}

impl Tools {
    /// # Errors
    /// A program that does not know its own path.
    pub(super) fn new(args: &RunArgs, scratch: &Path) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|e| format!("this program's own path: {e}"))?;
        let bin = args.bin.clone().unwrap_or(own.parent().unwrap_or(Path::new(".")).to_path_buf());
        let named = |given: &Option<PathBuf>, name: &str| {
            absolute(given.as_ref().unwrap_or(&bin.join(name)))
        };
        let tool = |given: &Option<PathBuf>, name: &str| match given {
            Some(path) => Some(absolute(path)),
            None => in_path(name),
        };
        Ok(Self {
            quick: args.quick,
            onegraph: named(&args.onegraph, "onegraph"),
            bench: named(&args.bench, "bench"),
            python: args.python.clone(),
            peers: absolute(&args.peers),
            sanitizer: tool(&args.sanitizer, "compute-sanitizer"),
            ncu: tool(&args.ncu, "ncu"),
            images: absolute(&args.images),
            annotations: absolute(&args.annotations),
            scratch: scratch.to_path_buf(),
            own,
        })
    }

    fn program(&self, path: &Path) -> Program {
        Program::new(path, &self.scratch)
    }

    /// This program's own work.
    fn work(&self, what: &str) -> Program {
        let program = self.program(&self.own).args(["work", what]);
        let program = program.args([Path::new("--images"), &self.images]);
        let program = program.args([Path::new("--annotations"), &self.annotations]);
        program.args(self.quick.then_some("--quick"))
    }

    fn items(each: u64, restarts: usize) -> ItemLimits {
        let (each, start) = (Duration::from_secs(each), Duration::from_secs(60));
        ItemLimits { each, start, restarts }
    }

    pub(super) fn clocks(&self) -> Stage {
        let program = self.work("clocks");
        Stage::new("clocks", 20, Ok(program)).without_device().reading(Reading::Words)
    }

    pub(super) fn doctor(&self) -> Stage {
        let program = self.program(&self.onegraph).args(["doctor"]);
        Stage::new("doctor", 30, Ok(program)).without_device().reading(Reading::Words)
    }

    /// The driver compiles all kernels when it first sees them.
    pub(super) fn device(&self) -> Stage {
        Stage::new("device", 120, Ok(self.work("device"))).items(Self::items(90, 4))
    }

    /// With synchronous launches a fault names its kernel.
    pub(super) fn ops(&self) -> Stage {
        let program = self.work("ops").env("CUDA_LAUNCH_BLOCKING", "1");
        Stage::new("ops", 120, Ok(program)).items(Self::items(20, 12))
    }

    pub(super) fn step(&self) -> Stage {
        Stage::new("step", 75, Ok(self.work("step"))).items(Self::items(30, 8))
    }

    pub(super) fn repeat(&self) -> Stage {
        Stage::new("repeat", 60, Ok(self.work("repeat")))
    }

    pub(super) fn train(&self) -> Stage {
        Stage::new("train", 90, Ok(self.work("train"))).least(30).optional()
    }

    /// For a test of the runner: never ends.
    pub(super) fn hang(&self) -> Stage {
        Stage::new("hang", 1, Ok(self.work("hang")))
    }

    /// The small cases under a tool that checks every memory access.
    pub(super) fn sanitizer(&self, tool: &str) -> Stage {
        let program = self.sanitizer.as_ref().ok_or(absent("compute-sanitizer"));
        let program = program.map(|path| {
            let work = self.work("small-ops").args(["--seconds", SECONDS]).seconds(110, 30);
            // Its program follows the options as it is: a `--` is not in its manual.
            work.under(path, &["--tool", tool, "--error-exitcode", SANITIZER_FOUND])
        });
        let stage = Stage::new(tool, 150, program).least(45).optional();
        stage.reading(Reading::Sanitizer)
    }

    /// The command bench on a full-size config, or a small one.
    fn sized(&self, what: &[&str], batch: usize, shape: &str) -> Program {
        let program = self.program(&self.bench).args(what).args(["--device", "cuda"]);
        match self.quick {
            true => program.args(["--preset", "micro", "--set", "train.batch_size=2"]),
            false => {
                let batch = format!("train.batch_size={batch}");
                let program = program.args(["--preset", "torchvision_r50", "--padded", shape]);
                program.args(["--set", &batch])
            }
        }
    }

    /// Steps at full size.
    pub(super) fn bench(&self, batch: usize, shape: &str, steps: u64, most: u64) -> Stage {
        let file = format!("bench-{batch}x{shape}.json");
        let program = self.steps(batch, shape, steps, most).args(["--json", &file]);
        let name = format!("bench {batch}x{shape}");
        Self::of_steps(&name, program, &file, most).reading(Reading::Bench)
    }

    /// The same with the sums over ranks, next to the stage `bench 12x800x1344` if that was run.
    pub(super) fn bench_all_reduce(&self, steps: u64, most: u64) -> Stage {
        let program = self.steps(12, "800x1344", steps, most);
        let program = program.args(["--all-reduce", "--json", ALL_REDUCE]).file("--against", PLAIN);
        Self::of_steps("bench all-reduce", program, ALL_REDUCE, most).reading(Reading::AllReduce)
    }

    /// The command bench for so many steps, at most `most` seconds.
    fn steps(&self, batch: usize, shape: &str, steps: u64, most: u64) -> Program {
        let (steps, warmup) = if self.quick { (3, "1") } else { (steps, "5") };
        let program = self.sized(&[], batch, shape).args(["--steps", &steps.to_string()]);
        let program = program.args(["--warmup", warmup, "--seconds", SECONDS]);
        program.seconds(most.min(45), BENCH_START_SECONDS)
    }

    fn of_steps(name: &str, program: Program, file: &str, most: u64) -> Stage {
        let limit = most + BENCH_START_SECONDS;
        Stage::new(name, limit, Ok(program)).least(BENCH_START_SECONDS + 5).details(file)
    }

    /// NCCL itself: sums over a group of one rank in a captured graph.
    pub(super) fn sums(&self) -> Stage {
        let variables = nccl_variables(false).into_iter();
        let program = variables.fold(self.work("sums"), |program, (n, v)| program.env(n, v));
        Stage::new("sums", 60, Ok(program))
    }

    /// Two ranks on the one GPU, where NCCL lets them.
    pub(super) fn two_ranks(&self) -> Stage {
        let program = self.work("two-ranks").args([Path::new("--onegraph"), &self.onegraph]);
        Stage::new("two ranks", 90, Ok(program)).least(20).optional()
    }

    pub(super) fn bench_ops(&self) -> Stage {
        let program = self.program(&self.bench).args(["ops", "--device", "cuda"]);
        let program = program.args(["--json", "ops.json"]);
        let few = ["--filter", "relu_mask", "--repeats", "2"];
        let program = program.args(self.quick.then_some(few).into_iter().flatten());
        let stage = Stage::new("bench ops", 90, Ok(program)).least(30);
        stage.keeps("ops.json", "ops.json", None).details("ops.json").reading(Reading::Ops)
    }

    /// A baseline script, with `small` arguments if everything is small. Each writes its JSON after
    /// every figure, and gets the number of seconds that it may take.
    fn peer(&self, name: &str, script: &str, args: &[&str], small: &[&str]) -> Stage {
        /// Seconds that a script needs to load its libraries and to end.
        const START: u64 = 20;
        let path = self.peers.join(script);
        let json = format!("{}.json", name.replace(' ', "-"));
        let program = match path.is_file() {
            true => Ok(self.program(&self.python).args([&path]).args(args)),
            false => Err(format!("the kit holds no peers/{script}")),
        };
        let small = self.quick.then_some(small);
        let program = program.map(|program| {
            let program = program.args(["--json", &json, "--budget", SECONDS]).seconds(55, START);
            let program = program.args(["--device", "cuda"]).env("PYTHONUNBUFFERED", "1");
            program.args(small.into_iter().flatten())
        });
        let stage = Stage::new(name, 55 + START, program).least(START + 5).optional();
        stage.keeps(&json, "peers.json", Some(name))
    }

    pub(super) fn ceilings(&self) -> Stage {
        let stage = self.peer("ceilings", "ceilings.py", &[], &["--tiny"]);
        // If PyTorch was never loaded before, loading it may take half a minute.
        stage.at_most(75).told_seconds(15, 15).modules(&["torch"]).details(CEILINGS)
    }

    pub(super) fn convolutions(&self) -> Stage {
        let stage =
            self.peer("convolutions", "convolutions.py", &["--shapes", SHAPES], &["--tiny"]);
        stage.modules(&["torch"])
    }

    pub(super) fn torchvision_step(&self) -> Stage {
        let args = ["--batch", "12", "--variants", "eager_amp,eager_amp_bn16"];
        let small = ["--tiny", "--batch", "1", "--variants", "eager_amp", "--steps", "2"];
        let small = [&small[..], &["--pool", "2", "--warmup", "1"]].concat();
        let stage = self.peer("torchvision step", "torchvision_gpu_step.py", &args, &small);
        stage.modules(&["torch", "torchvision"])
    }

    pub(super) fn torchvision_eval(&self) -> Stage {
        let small = ["--padded", "64x64", "--batch", "1", "--images", "2", "--warmup", "1"];
        let stage = self.peer("torchvision eval", "torchvision_eval.py", &[], &small);
        stage.at_most(45).told_seconds(25, 20).modules(&["torch", "torchvision"])
    }

    /// Every op of a step of one image, against the reference.
    pub(super) fn nodes_check(&self) -> Stage {
        let args = ["--check", "only", "--json", "nodes-check.json"];
        let program = self.sized(&["nodes"], 1, "800x1344").args(args);
        Stage::new("nodes check", 100, Ok(program)).least(20).details("nodes-check.json")
    }

    /// Every launch of a step of twelve images by itself, and the step as a whole.
    pub(super) fn nodes(&self) -> Stage {
        let program = self.sized(&["nodes"], 12, "800x1344").file("--ceilings", CEILINGS);
        let program = program.args(["--check", "skip", "--json", NODES, "--timeline", TIMELINE]);
        let program = program.args(self.quick.then_some(["--repeats", "2"]).into_iter().flatten());
        let stage = Stage::new("nodes", 110, Ok(program)).least(30).reading(Reading::Nodes);
        stage.keeps(NODES, NODES, None).keeps(TIMELINE, TIMELINE, None).details(NODES)
    }

    /// The shapes of the step, for peers; nothing runs.
    pub(super) fn shapes(&self) -> Stage {
        let program = self.sized(&["nodes"], 12, "800x1344").args(["--shapes", SHAPES]);
        let padded = self.quick.then_some(["--padded", "64x64"]);
        let program = program.args(padded.into_iter().flatten());
        Stage::new("shapes", 45, Ok(program))
            .without_device()
            .reading(Reading::Shapes)
            .details(SHAPES)
    }

    /// The detection program by itself, and with the host work after it.
    pub(super) fn infer(&self) -> Stage {
        let program = self.sized(&["infer"], 12, "800x1344").args(["--batch", "1,8"]);
        let program = program.args(["--seconds", SECONDS, "--json", "infer.json"]).seconds(15, 35);
        let program = program.args(self.quick.then_some(["--images", "2"]).into_iter().flatten());
        Stage::new("infer", 65, Ok(program))
            .least(40)
            .optional()
            .reading(Reading::Infer)
            .details("infer.json")
    }

    /// One step under ncu: this many replays, and no other launches.
    fn ncu(&self, file: &str, args: &[&str]) -> Result<Program, String> {
        let tool = self.ncu.as_ref().ok_or(absent("ncu"))?;
        let step = self.sized(&[], 12, "800x1344").args(["--steps", "1", "--warmup", "0"]);
        let all = ["--graph-profiling", "node", "--clock-control", "none"];
        let more = ["--cache-control", "none", "--log-file", file];
        Ok(step.under(tool, &[&all[..], &more[..], args].concat()))
    }

    /// A table of all nodes.
    pub(super) fn ncu_nodes(&self) -> Stage {
        let args = ["--csv", "--page", "raw", "--print-units", "base", "--metrics", NCU_METRICS];
        let program = self.ncu("ncu.csv", &[&args[..], &["--launch-count", NCU_NODES]].concat());
        let stage = Stage::new("ncu nodes", 150, program).least(60).optional().notice(20);
        stage.keeps("ncu.csv", "ncu.txt", Some("nodes")).reading(Reading::Ncu)
    }

    /// Everything that ncu reports on a few kernels.
    pub(super) fn ncu_kernels(&self) -> Stage {
        let first = format!("::regex:^({})$:1", NCU_KERNELS.join("|"));
        let sections = NCU_SECTIONS.iter().flat_map(|section| ["--section", section]);
        let mut args: Vec<&str> = sections.collect();
        args.extend(["--kernel-id", &first, "--page", "details"]);
        let program = self.ncu("ncu-kernels.log", &args);
        let stage = Stage::new("ncu kernels", 120, program).least(60).optional().notice(20);
        stage.keeps("ncu-kernels.log", "ncu.txt", Some("kernels")).reading(Reading::Ncu)
    }
}

fn absent(program: &str) -> String {
    format!("{program} is neither in PATH nor in the kit")
}

#[cfg(test)]
mod tests {
    use device::Gpu;

    use super::NCU_KERNELS;

    #[test]
    fn the_kernels_for_ncu_exist() {
        let manifest = kernels::compiled::kernels().manifest();
        for name in NCU_KERNELS {
            assert!(manifest.kernel(name, Gpu::h100().capability).is_some(), "{name}");
        }
    }
}
