//! Limits of the step of Mask R-CNN R50, counted on paper: a change that adds work, bytes or
//! launches fails here.

use configs::Config;
use dali::order::PaddedShape;
use device::{Gpu, Launch};
use kernels::time::{Case, Peak, Rates, Work};

use super::model::Model;
use super::nodes::{self, NodesPlan};
use super::step::Setting;
use super::wires::{Fabric, MACHINES};

const IMAGES: usize = 12;

fn step(gpu: &Gpu, case: Case, padded: PaddedShape) -> NodesPlan {
    let config = Config::load("torchvision_r50", &[]).expect("a preset");
    let model = Model::new(&config, IMAGES, padded, gpu).expect("a model");
    nodes::plan(&Setting {
        model: &model,
        case,
        fabric: Fabric { ranks: 1, nvlink: MACHINES[0].nvlink, network: MACHINES[0].efa },
        bucket_mib: 50.0,
        positives: 64.0,
    })
}

/// TFLOP, GB and kernels of a step at 800x1088, 64 positives an image.
const TFLOP: f64 = 0.99;
const GIGABYTES: f64 = 3.4;
const KERNELS: usize = 343;

#[test]
fn the_step_keeps_to_its_work() {
    let step = step(&Gpu::h100(), Case::Expected, PaddedShape { height: 800, width: 1088 });
    let whole = step.whole();
    let of_image = |value: f64, unit: f64| value / unit / IMAGES as f64;
    let (tflop, gigabytes) = (of_image(whole.flops, 1e12), of_image(whole.bytes, 1e9));
    assert!(tflop <= TFLOP, "{tflop:.3} TFLOP an image, of {TFLOP}");
    assert!(gigabytes <= GIGABYTES, "{gigabytes:.3} GB an image, of {GIGABYTES}");
    assert!(whole.kernels <= KERNELS, "{} kernels, of {KERNELS}", whole.kernels);
}

/// Kernels of the main stream that come between the dense RPN head and the sampled RoIs.
const CHAIN: usize = 14;

#[test]
fn few_kernels_come_between_rpn_and_rois() {
    let step = step(&Gpu::h100(), Case::Expected, PaddedShape { height: 800, width: 1344 });
    let main: Vec<_> = step.nodes.iter().filter(|node| node.stream == 0).collect();
    let last = |name: &str| main.iter().rposition(|node| node.name.starts_with(name));
    let head = last("rpn.head").expect("the RPN's head");
    let sampled = last("roi_sampling.sample_rois").expect("sampled RoIs");
    let between: usize = main[head + 1..=sampled].iter().map(|node| node.kernels.len()).sum();
    assert!(between <= CHAIN, "{between} kernels, of {CHAIN}");
}

/// No node beats the data sheet, none moves more than 92 % of its bandwidth, even at its best.
#[test]
fn no_node_beats_its_floor() {
    for gpu in Gpu::NAMES.map(|name| Gpu::named(name).expect(name)) {
        let peak = Peak::of(&gpu.name).expect("a sheet");
        let step = step(&gpu, Case::Fast, PaddedShape { height: 800, width: 1344 });
        for node in &step.nodes {
            assert!(node.ms >= node.floor_ms, "{} on {}: {node:?}", node.name, gpu.name);
            let gb_per_s = node.bytes / node.ms.max(1e-9) / 1e6;
            let most = 0.92 * peak.gb_per_s;
            assert!(gb_per_s <= most, "{} on {}: {gb_per_s} GB/s", node.name, gpu.name);
        }
    }
}

/// A product that fills the GPU for long comes near the rate that is printed, and no nearer than
/// 10 % where its tiles start and end often.
#[test]
fn the_rate_used_is_the_rate_printed() {
    for gpu in Gpu::NAMES.map(|name| Gpu::named(name).expect(name)) {
        for case in Case::ALL {
            let rates = Rates::of(&gpu, case);
            for (kernel, side, shared) in
                [("conv2d_f16_large", 128, 65_536), ("conv2d_f16_small", 64, 32_768)]
            {
                let blocks = 100 * 8 * gpu.multiprocessors;
                let tflops = |depth: usize| {
                    let launch = Launch::new(kernel, [blocks, 1, 1]).block(128).shared(shared);
                    let (blocks, depth) = (blocks as f64, depth as f64);
                    let work = Work { blocks, depth, ..Work::default() };
                    let flops = 2.0 * blocks * (side * side) as f64 * depth;
                    flops / rates.launch(&launch, &work).us / 1e6
                };
                let said = rates.tflops(kernel).expect("a tile");
                let ratio = tflops(1 << 20) / said;
                assert!((ratio - 1.0).abs() < 0.01, "{kernel} on {}: {ratio}", gpu.name);
                assert!(tflops(256) < 0.9 * said, "{kernel} on {}", gpu.name);
            }
        }
    }
}

/// Accuracies add two launches, and leave kernel, grid and stream of all others as they are.
#[test]
fn accuracies_add_two_launches() {
    let gpu = Gpu::named(Gpu::NAMES[0]).expect("a GPU");
    let launches = |asked: bool| {
        let set = [format!("train.accuracies={asked}")];
        let config = Config::load("finetune", &set).expect("a preset");
        let padded = PaddedShape { height: 800, width: 1344 };
        let model = Model::new(&config, 2, padded, &gpu).expect("a model");
        let named = model.launches().map(|(stream, of)| (stream, of.kernel, of.grid));
        named.collect::<Vec<_>>()
    };
    let (plain, mut asked) = (launches(false), launches(true));
    asked.retain(|(_, kernel, _)| !kernel.starts_with("accuracies"));
    assert_eq!(asked.len() + 2, launches(true).len());
    assert_eq!(plain, asked);
}

/// Kernel, grid and stream of each launch of every preset, as a digest by preset and GPU: a model
/// of time that chooses other plans shows here.
#[test]
fn every_product_keeps_its_plan() {
    let mut found = String::new();
    for preset in configs::preset_names() {
        let config = Config::load(preset, &[]).expect("a preset");
        for gpu in Gpu::NAMES.map(|name| Gpu::named(name).expect(name)) {
            let side = |size: usize| size.next_multiple_of(config.input.size_divisor);
            let (height, width) = (side(config.input.min_size), side(config.input.max_size));
            let images = config.train.images_per_group;
            let padded = PaddedShape { height, width };
            let model = Model::new(&config, images, padded, &gpu).expect("a model");
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
