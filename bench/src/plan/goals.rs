//! Hand-counted limits for the training step of Mask R-CNN R50: a change that adds FLOPs, bytes or
//! launches fails here. Also checks the table in `docs/models.md`.

use std::path::Path;

use dali::order::PaddedShape;
use device::Gpu;
use engine::config::Config;
use kernels::time::{Case, Peak, Rates};

use super::model::{Model, Setting, StepPlan};
use super::network::Network;
use super::{own_shape, range, rates};

const IMAGES: usize = 12;
const FULL: PaddedShape = PaddedShape { height: 800, width: 1344 };

/// One GPU.
const SINGLE: Setting = Setting {
    case: Case::Expected,
    gpus: 1,
    network: Network { gb_per_s: 345.0, hop_us: 3.4 },
    positives: 64.0,
};

fn step(gpu: &Gpu, case: Case, padded: PaddedShape) -> StepPlan {
    let config = Config::load("torchvision_r50", &[]).expect("a preset");
    let model = Model::new(&config, 1, IMAGES, padded, gpu).expect("a model");
    model.step(&Setting { case, ..SINGLE })
}

/// Maximum TFLOP and GB per image, and kernels per step, at 800x1088 with 64 positives per image.
const TFLOP: f64 = 0.99;
const GIGABYTES: f64 = 3.4;
const KERNELS: usize = 379;

#[test]
fn step_flops_bytes_and_kernels_stay_within_limits() {
    let step = step(&Gpu::h100(), Case::Expected, PaddedShape { height: 800, width: 1088 });
    let of_image = |value: f64, unit: f64| value / unit / IMAGES as f64;
    let tflop = of_image(step.sum(|node| node.flops), 1e12);
    let gigabytes = of_image(step.sum(|node| node.bytes), 1e9);
    assert!(tflop <= TFLOP, "{tflop:.3} TFLOP an image, of {TFLOP}");
    assert!(gigabytes <= GIGABYTES, "{gigabytes:.3} GB an image, of {GIGABYTES}");
    assert!(step.kernels() <= KERNELS, "{} kernels, of {KERNELS}", step.kernels());
}

/// Even in the fast case, no node is faster than the data sheet's peaks allow, or needs more than
/// 92 % of the peak bandwidth.
#[test]
fn predicted_node_times_respect_peak_flops_and_bandwidth() {
    for gpu in Gpu::NAMES.map(|name| Gpu::named(name).expect(name)) {
        let peak = Peak::of(&gpu.name).expect("a sheet");
        let step = step(&gpu, Case::Fast, FULL);
        for node in &step.nodes {
            assert!(node.ms >= node.floor_ms, "{} on {}: {node:?}", node.name, gpu.name);
            let gb_per_s = node.bytes / node.ms.max(1e-9) / 1e6;
            let most = 0.92 * peak.gb_per_s;
            assert!(gb_per_s <= most, "{} on {}: {gb_per_s} GB/s", node.name, gpu.name);
        }
    }
}

/// `train.accuracies` adds two launches; kernel, grid and stream of all other launches stay the
/// same.
#[test]
fn training_accuracies_add_two_launches() {
    let gpu = Gpu::named(Gpu::NAMES[0]).expect("a GPU");
    let launches = |asked: bool| {
        let set = [format!("train.accuracies={asked}")];
        let config = Config::load("finetune", &set).expect("a preset");
        let model = Model::new(&config, 1, 2, FULL, &gpu).expect("a model");
        let named = model.launches().map(|(stream, of)| (stream, of.kernel, of.grid));
        named.collect::<Vec<_>>()
    };
    let (plain, mut asked) = (launches(false), launches(true));
    asked.retain(|(_, kernel, _)| !kernel.starts_with("accuracies"));
    assert_eq!(asked.len() + 2, launches(true).len());
    assert_eq!(plain, asked);
}

/// A digest of kernel, grid and stream of all launches, per preset and GPU: fails if the cost model
/// selects different GEMM plans.
#[test]
fn every_gemm_matches_recorded_plan() {
    let mut found = String::new();
    for preset in configs::preset_names() {
        let config = Config::load(preset, &[]).expect("a preset");
        for gpu in Gpu::NAMES.map(|name| Gpu::named(name).expect(name)) {
            let images = config.train.images_per_group;
            let padded = own_shape(&config);
            let model = Model::new(&config, 1, images, padded, &gpu).expect("a model");
            let rates = Rates::of(&gpu, Case::Expected);
            let (mut text, mut products) = (String::new(), 0);
            for (stream, launch) in model.launches() {
                products += usize::from(rates.tflops(launch.kernel).is_some());
                text += &format!("{stream} {} {:?}\n", launch.kernel, launch.grid);
            }
            let digest = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
                (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            });
            found += &format!("{preset} {} {products} {digest:016x}\n", gpu.name);
        }
    }
    assert!(found == include_str!("plans.txt"), "bench/src/plan/plans.txt is to be:\n{found}");
}

/// With many GPUs the all-reduces run one after another, before the update; a slower network
/// increases the step time.
#[test]
fn multi_gpu_step_waits_for_all_reduce() {
    let config = Config::load("mlperf_r50", &[]).expect("a preset");
    let small = PaddedShape { height: 256, width: 320 };
    let of = |gpus| Model::new(&config, gpus, 1, small, &Gpu::a100()).expect("a model");
    let alone = of(1).step(&SINGLE);
    assert!(alone.nodes.iter().all(|node| node.summed_bytes == 0));
    let many = of(256);
    let times = |gb_per_s, hop_us| {
        many.step(&Setting { gpus: 256, network: Network { gb_per_s, hop_us }, ..SINGLE })
    };
    let (fast, slow) = (times(f64::INFINITY, 0.0), times(30.0, 75.0));
    assert!(alone.ms < fast.ms && fast.ms < slow.ms, "{} {} {}", alone.ms, fast.ms, slow.ms);
    let sums: Vec<_> = slow.nodes.iter().filter(|node| node.summed_bytes > 0).collect();
    let in_turn = sums.windows(2).all(|pair| pair[1].start_ms >= pair[0].start_ms + pair[0].ms);
    assert!(in_turn, "{sums:?}");
    let end = sums.iter().map(|node| node.start_ms + node.ms).fold(0.0, f64::max);
    assert!(end < slow.ms, "the update comes after the last sum");
    // The first all-reduce contains the losses; the others contain the fp16 gradients of all
    // parameters that MLPerf trains: not those of stem and res2.
    let gradients: usize = sums[1..].iter().map(|node| node.summed_bytes).sum();
    assert_eq!(gradients, 2 * 44_125_173);
}

/// The table row of a preset: millions of trained parameters, TFLOP per image, and images/s on one
/// H100.
fn row(preset: &str) -> String {
    let config = Config::load(preset, &[]).expect("a preset");
    let model = Model::new(&config, 1, IMAGES, FULL, &Gpu::h100()).expect("a model");
    let program = &model.prepared.program;
    let norms = program.nodes().iter().find(|node| node.op.name() == "grad_norms");
    let grads = &norms.expect("a training step").inputs;
    let trained: usize = grads.iter().map(|grad| program.desc(*grad).len()).sum();
    let steps = Case::ALL.map(|case| model.step(&Setting { case, ..SINGLE }));
    let (millions, rates) = (trained as f64 / 1e6, rates(IMAGES, steps.each_ref().map(|s| s.ms)));
    let tflop = steps[1].sum(|node| node.flops) / 1e12 / IMAGES as f64;
    format!("| `{preset}` | {millions:.1} | {tflop:.2} | {} |", range(rates, 0))
}

#[test]
fn model_table_in_docs_matches_plan() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/models.md");
    let page = std::fs::read_to_string(&path).expect("a page");
    let (_, costs) = page.split_once("## Cost\n").expect("a section of costs");
    let table = costs.split("\n## ").next().unwrap_or(costs);
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() > 20, "{table}");
    let mut made = page.clone();
    for written in rows {
        let preset = written.split('`').nth(1).expect("a name");
        made = made.replace(written, &row(preset));
    }
    if std::env::var("ONEGRAPH_DOCS").is_ok_and(|value| value == "write") {
        return std::fs::write(&path, made).expect("room");
    }
    assert!(
        page == made,
        "docs/models.md differs from the plan; write its table again: \
         ONEGRAPH_DOCS=write cargo test --release -p bench model_table_in_docs"
    );
}
