//! Checks every launch of full-size programs against the limits of GPUs. Launches are data, so no
//! device is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use device::manifest::{Kernel, Resources};
use device::{DevicePtr, Gpu, Launch, Precision, Target, Touch};
use engine::config::Config;
use engine::model::{ImageSize, ModelSpec, Part, SlotShape, detection_program, training_program};
use engine::runtime::imagined_addresses;
use graph::capture::Work;
use graph::exec::device::{Place, Prepared};
use kernels::compiled::kernels;

/// Images per batch: the minimum, a typical number per GPU, and more than any run has used.
const BATCHES: [usize; 3] = [1, 12, 48];
const LANDSCAPE: ImageSize = ImageSize { height: 800, width: 1344 };
const PORTRAIT: ImageSize = ImageSize { height: 1344, width: 800 };

// Limits of compute capability 8.0 and 9.0: CUDA C++ Programming Guide 12.2, table 15.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
const MAX_PARAMETER_BYTES: usize = 4096;
/// Shared memory of A100 with the opt-in for more than 48 KiB; H100 has more.
const MAX_SHARED_BYTES: usize = 163 << 10;
/// Registers per SM: each of its four sub-partitions allocates a quarter, to warps in units of 256.
const REGISTERS: u32 = 65_536;
const REGISTER_UNIT: u32 = 256;
/// Alignment of dynamic shared memory, which follows static shared memory: `DYNAMIC_SHARED` in
/// platform.cuh.
const SHARED_ALIGNMENT: usize = 128;
/// Widest load or store; vectorized code assumes that tensors have this alignment.
const VECTOR_BYTES: usize = 16;

const ARENA: DevicePtr = 1 << 44;
const INPUTS: DevicePtr = 1 << 43;

/// The maximum block size of each kernel, from `__launch_bounds__`.
static MAX_THREADS: LazyLock<BTreeMap<&str, u32>> = LazyLock::new(|| {
    let mut bounds = BTreeMap::new();
    for source in &kernels().manifest().sources {
        let mut entry = None;
        for line in kernels().ptx(source).lines() {
            if let Some((_, rest)) = line.split_once(".entry ") {
                entry = rest.split('(').next();
            }
            if let (Some(name), Some(rest)) = (entry, line.strip_prefix(".maxntid ")) {
                let extents = rest.split(',').map(|n| n.trim().parse::<u32>().expect("a number"));
                bounds.insert(name, extents.product());
            }
        }
    }
    bounds
});

/// Memory that a launch may access: the arena, the inputs, and each state tensor.
struct Memory {
    /// End of each region, by the address of its first byte.
    regions: BTreeMap<DevicePtr, DevicePtr>,
}

impl Memory {
    fn of(prepared: &Prepared, state: &dyn Fn(&str) -> Option<DevicePtr>) -> Self {
        let range = |start: DevicePtr, bytes: usize| (start, start + bytes as DevicePtr);
        let states = prepared.program.states().map(|(_, tensor)| {
            range(state(&tensor.name).expect("an address"), prepared.target.bytes(&tensor.desc))
        });
        let whole =
            [range(ARENA, prepared.plan.arena_bytes()), range(INPUTS, prepared.input_bytes())];
        Self { regions: states.chain(whole).collect() }
    }

    fn holds(&self, touch: &Touch) -> bool {
        let end = touch.ptr + touch.bytes as DevicePtr;
        self.regions.range(..=touch.ptr).next_back().is_some_and(|(_, &last)| end <= last)
    }
}

/// The reasons why a GPU would reject a launch or execute it incorrectly.
fn faults(launch: &Launch, memory: &Memory) -> Vec<String> {
    let a100 = Gpu::a100().capability;
    let Some((_, kernel)) = kernels().manifest().kernel(launch.kernel, a100) else {
        return vec!["is not in ptx/".into()];
    };
    let mut faults = argument_faults(launch, kernel);
    let threads: u32 = launch.block.iter().product();
    for (axis, (blocks, most)) in ["x", "y", "z"].iter().zip(launch.grid.iter().zip(MAX_GRID)) {
        if *blocks > most {
            faults.push(format!("has {blocks} blocks in {axis}, of at most {most}"));
        }
    }
    let bound = MAX_THREADS.get(launch.kernel).copied().unwrap_or(0);
    if threads == 0 || threads > bound || !threads.is_multiple_of(32) {
        faults.push(format!("has {threads} threads per block, but is compiled for {bound}"));
    }
    for (sm, resources) in &kernel.on {
        let fault = resource_fault(launch, threads, resources);
        faults.extend(fault.map(|fault| format!("{fault} on {sm}")));
    }
    for touch in launch.touches().filter(|touch| touch.bytes > 0) {
        let whole = touch.bytes.min(VECTOR_BYTES).next_power_of_two();
        // A scalar, such as the last element of the norms, needs only the alignment of its type.
        let unit = if touch.bytes < VECTOR_BYTES { whole.min(4) } else { VECTOR_BYTES };
        if !touch.ptr.is_multiple_of(unit as DevicePtr) {
            faults.push(format!("{:#x} is not aligned to {unit}", touch.ptr));
        }
        if !memory.holds(&touch) {
            faults.push(format!(
                "accesses {} bytes at {:#x}, which are in no tensor",
                touch.bytes, touch.ptr
            ));
        }
    }
    faults
}

/// Reports arguments that do not match the kernel's parameters, or exceed the maximum size per
/// launch.
fn argument_faults(launch: &Launch, kernel: &Kernel) -> Vec<String> {
    let mut faults = vec![];
    let given: Vec<usize> = launch.args.iter().map(|arg| arg.bytes().len()).collect();
    if given != kernel.parameter_bytes {
        faults.push(format!("has arguments of {given:?} bytes for {:?}", kernel.parameter_bytes));
    }
    // Each argument is aligned to the maximum alignment.
    let bytes: usize = given.iter().map(|bytes| bytes.next_multiple_of(16)).sum();
    if bytes > MAX_PARAMETER_BYTES {
        faults.push(format!("has {bytes} bytes of arguments, of at most {MAX_PARAMETER_BYTES}"));
    }
    faults
}

/// Reports a block that does not fit an SM.
fn resource_fault(launch: &Launch, threads: u32, resources: &Resources) -> Option<String> {
    let shared = (resources.shared_bytes as usize).next_multiple_of(SHARED_ALIGNMENT)
        + launch.shared_bytes as usize;
    if shared > MAX_SHARED_BYTES {
        return Some(format!("uses {shared} bytes of shared memory"));
    }
    let of_warp = (resources.registers * 32).next_multiple_of(REGISTER_UNIT).max(REGISTER_UNIT);
    let warps = REGISTERS / 4 / of_warp * 4;
    (threads.div_ceil(32) > warps)
        .then(|| format!("has {threads} threads of {} registers", resources.registers))
}

fn spec(config: &Config, images: usize, padded: ImageSize) -> ModelSpec<'_> {
    const OBJECTS: usize = 100;
    let slot = SlotShape::imagined(padded.height, padded.width, OBJECTS);
    ModelSpec {
        config,
        num_classes: 80,
        images,
        padded,
        slot,
        target: Target::Gpu(Gpu::a100().in_precision(config.train.precision)),
        part: Part::whole(),
        observe: false,
    }
}

fn preset(name: &str, set: &[&str]) -> Config {
    let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
    Config::load(name, &set).expect("the preset loads")
}

fn prepare(spec: &ModelSpec<'_>, detection: bool) -> Prepared {
    let build = if detection { detection_program } else { training_program };
    let program = Arc::new(build(spec).expect("a program").program);
    Prepared::new(program, spec.target.clone()).expect("a schedule")
}

/// The [`Work`] of each node of a program, and the memory that the launches may access.
fn works(prepared: &Prepared) -> (Vec<Work>, Memory) {
    let state = imagined_addresses(prepared);
    let place = Place { arena: ARENA, inputs: INPUTS, state: &state };
    let list = prepared.launches(&place).expect("all state has addresses");
    (list.works().to_vec(), Memory::of(prepared, &state))
}

/// Checks all launches of the training step and the detection pass of a preset.
fn check(name: &str, set: &[&str]) {
    check_batches(name, set, &BATCHES);
}

fn check_batches(name: &str, set: &[&str], batches: &[usize]) {
    let config = preset(name, set);
    let mut launches = 0;
    for &images in batches {
        for padded in [LANDSCAPE, PORTRAIT] {
            for detection in [false, true] {
                let prepared = prepare(&spec(&config, images, padded), detection);
                let (works, memory) = works(&prepared);
                for launch in works.iter().flat_map(|work| work.kernels()) {
                    let faults = faults(launch, &memory);
                    assert!(
                        faults.is_empty(),
                        "{name}, {images} images of {padded:?}, detection {detection}: {} {:?} {}",
                        launch.kernel,
                        launch.grid,
                        faults.join("; "),
                    );
                    launches += 1;
                }
            }
        }
    }
    println!("{name}: {launches} launches");
    assert!(launches > 100, "{launches} launches are no model");
}

#[test]
fn mask_rcnn_r50_launches_fit_gpu() {
    check("torchvision_r50", &[]);
}

/// In fp32 and tf32 the kernels differ and tensors have twice the bytes.
#[test]
fn fp32_and_tf32_launches_fit_gpu() {
    for precision in ["fp32", "tf32"] {
        let set = format!("train.precision={precision}");
        check_batches("torchvision_r50", &[&set], &BATCHES[..1]);
    }
}

/// A step must not use kernels that read single values, which are ten times slower than those that
/// read chunks.
#[test]
fn step_uses_no_unaligned_kernel() {
    for name in
        ["torchvision_r18", "torchvision_r50", "torchvision_r101", "faster_r50", "mlperf_r50"]
    {
        let config = preset(name, &[]);
        for padded in [LANDSCAPE, PORTRAIT] {
            let (works, _) = works(&prepare(&spec(&config, 12, padded), false));
            let launches = works.iter().flat_map(|work| work.kernels());
            let unaligned: Vec<_> =
                launches.filter(|l| l.kernel.contains("unaligned")).map(|l| l.kernel).collect();
            assert_eq!(unaligned, [""; 0], "{name}, {padded:?}");
        }
    }
}

/// A run loads only the modules of the kernels that its graphs launch.
#[test]
fn fp16_run_loads_no_fp32_kernel() {
    let config = preset("torchvision_r50", &[]);
    let mut loaded = BTreeSet::new();
    for detection in [false, true] {
        let (works, _) = works(&prepare(&spec(&config, 2, LANDSCAPE), detection));
        for launch in works.iter().flat_map(|work| work.kernels()) {
            let found = kernels().manifest().kernel(launch.kernel, Gpu::a100().capability);
            let (source, _) = found.expect("it is in ptx/");
            assert_eq!(source.real, Precision::Fp16, "{}", launch.kernel);
            loaded.insert(&source.ptx);
        }
    }
    let all = kernels().manifest().sources.len();
    println!("{} of {all} modules", loaded.len());
    assert!(loaded.len() < all * 3 / 4, "{} of {all} modules", loaded.len());
}

/// A single node writes the gradients of the pyramid's maps; no separate terms are stored.
#[test]
fn level_gradients_are_written_once() {
    for (name, heads) in [("torchvision_r50", 2), ("faster_r50", 1)] {
        let config = preset(name, &[]);
        let program = prepare(&spec(&config, 2, LANDSCAPE), false).program;
        let count = |op: &str| program.nodes().iter().filter(|n| n.op.name() == op).count();
        assert_eq!((count("roi_align"), count("level_gradients")), (heads, 1), "{name}");
        assert_eq!(count("roi_align_grad") + count("gather_patches_grad"), 0, "{name}");
        // P5 is the only map with an additional reader: P6 is pooled from it.
        let joined = program.nodes().iter().find(|n| n.op.name() == "level_gradients");
        let maps = &joined.expect("one").outputs;
        let sums = program.nodes().iter().filter(|n| n.op.name() == "sum");
        let summed = sums.flat_map(|n| &n.inputs).filter(|t| maps.contains(t)).count();
        assert_eq!((maps.len(), summed), (5, 1), "{name}");
    }
}

#[test]
fn mask_rcnn_r101_launches_fit_gpu() {
    check("torchvision_r101", &[]);
}

/// Basic blocks.
#[test]
fn mask_rcnn_r18_launches_fit_gpu() {
    check("torchvision_r18", &[]);
}

/// Convolutions in the box head and two in the RPN, with each kind of norm.
#[test]
fn mask_rcnn_r50_v2_launches_fit_gpu() {
    check("torchvision_r50_v2", &[]);
    for norm in ["frozen_statistics", "group_norm"] {
        let parts = ["backbone", "fpn", "box_head", "mask_head"];
        let mut set = parts.map(|part| format!("model.{part}.norm={norm}")).to_vec();
        set.push("model.backbone.norm_groups=32".into());
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        check_batches("detectron2_r50_lsj", &set, &[2]);
    }
}

/// Three box heads, whose map gradients are added to the mask head's.
#[test]
fn cascade_launches_fit_gpu() {
    check_batches("detectron2_cascade_r50_3x", &[], &[2]);
}

/// The backbone's last stage on RoIs, and 15 anchors per cell.
#[test]
fn c4_model_launches_fit_gpu() {
    check_batches("detectron2_r50_c4_3x", &[], &[2]);
}

/// RPN and heads on C5, with 2,048 channels.
#[test]
fn dc5_model_launches_fit_gpu() {
    check_batches("detectron2_r50_dc5_3x", &[], &[2]);
}

/// ResNeXts, whose convolutions have groups of 4 to 64 channels.
#[test]
fn resnext_launches_fit_gpu() {
    check_batches("torchvision_resnext50", &[], &[2]);
    check_batches("detectron2_x101_3x", &[], &[2]);
}

/// Depthwise convolutions; images have three channels.
#[test]
fn convnext_launches_fit_gpu() {
    check_batches("convnext_tiny", &[], &[2]);
}

#[test]
fn keypoint_rcnn_r50_launches_fit_gpu() {
    check_batches("torchvision_keypoint_r50", &[], &[2]);
}

#[test]
fn faster_rcnn_r50_launches_fit_gpu() {
    check("faster_r50", &[]);
}

/// The MLPerf rules select different kernels.
#[test]
fn mlperf_r50_launches_fit_gpu() {
    let [one, groups @ ..] = BATCHES;
    check_batches("mlperf_256", &[], &[one]);
    check_batches("mlperf_r50", &[], &groups);
}

/// The PTX needs no linking, so that a CUDA 12.2 driver loads each file directly.
#[test]
fn ptx_needs_no_external_symbol() {
    for source in &kernels().manifest().sources {
        let text = kernels().ptx(source);
        let says = |line: &str| text.lines().any(|l| l.trim() == line);
        let target = source.architecture.to_string().replace("compute", ".target sm");
        assert!(says(".version 8.2") && says(&target), "{}", source.ptx);
        let foreign = |l: &&str| l.contains(".extern") && !l.contains(".extern .shared");
        assert_eq!(text.lines().find(foreign), None, "{}", source.ptx);
        for kernel in &source.kernels {
            let bound = MAX_THREADS.get(kernel.name.as_str());
            assert!(bound.is_some_and(|&n| n <= 1024), "{} has no bound", kernel.name);
        }
    }
}

/// Dynamically indexed arrays are in local memory, which only single-threaded kernels may use. The
/// compile tool checks for register spills.
#[test]
fn kernels_keep_no_arrays_in_local_memory() {
    // The range reduction of cosine for large arguments keeps a table in local memory.
    let one_thread = ["control_step"];
    for source in &kernels().manifest().sources {
        for kernel in source.kernels.iter().filter(|k| !one_thread.contains(&k.name.as_str())) {
            let spills_alone = kernel.on.values().all(|on| on.stack_bytes <= on.spill_store_bytes);
            assert!(spills_alone, "{}", kernel.name);
        }
    }
}
