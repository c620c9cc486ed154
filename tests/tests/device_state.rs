//! Training state on a device: checkpoints moved between CPU and device, optimizers, logged
//! statistics, options, errors and memory.

use std::sync::Arc;

use device::{Access, Arg, Device, Launch, Touch};
use engine::metrics::StepRecord;
use engine::model::is_transient;
use engine::runtime::Backend;
use engine::train::Trainer;
use graph::StateSet;
use tests::step::{Run, resume, steps};

fn on_device() -> Backend {
    Backend::Device(Arc::new(test_gpu::open("A100 SEED=2")))
}

fn bits(trainer: &mut Trainer) -> Vec<(String, Vec<u8>)> {
    let state = trainer.state().fetch().expect("the state").without(is_transient);
    state.iter().map(|(name, t)| (name.to_string(), t.bytes().to_vec())).collect()
}

/// Compares all state except the ring of losses, which belongs to a process, not to a run.
fn assert_same_run(a: &[(String, Vec<u8>)], b: &[(String, Vec<u8>)]) {
    let of_run = |(name, _): &&(String, Vec<u8>)| !name.starts_with("ring");
    for (a, b) in a.iter().filter(of_run).zip(b.iter().filter(of_run)) {
        assert!(a == b, "{} differs", a.0);
    }
}

/// Three steps: their records, the state after them, and the trained parameters.
type Three = (Vec<StepRecord>, Vec<(String, Vec<u8>)>, Vec<String>);

/// Three steps with a batch of four, without and with the additional override `more`.
fn without_and_with(set: &[&str], more: &str, open: fn() -> Backend) -> [Three; 2] {
    let four = ["solver.initial_loss_scale=1024", "train.batch_size=4"];
    let [without, with] = [&[][..], &[more]].map(|more| {
        let run = Run::new(&[&four[..], set, more].concat());
        let mut trainer = run.trainer(&open());
        (steps(&mut trainer, 3), bits(&mut trainer), trainer.trained())
    });
    assert_same_run(&without.1, &with.1);
    [without, with]
}

/// A checkpoint saved on the CPU and restored on a device, or vice versa, is bit-identical,
/// including frozen weights, loss scale and counters, and the following steps equal f32's.
#[test]
fn checkpoint_moves_between_devices() {
    let set = ["train.batch_size=4", "train.images_per_group=2", "train.micro_steps=2"];
    let scale = ["solver.initial_loss_scale=512", "solver.dynamic_loss_scale=true"];
    let more = ["solver.loss_scale_growth_interval=3", "model.backbone.frozen_stages=2"];
    let run = Run::new(&[&set[..], &scale, &more].concat());
    for (from, to) in [(Backend::Cpu, on_device()), (on_device(), Backend::Cpu)] {
        let mut first = run.trainer(&from);
        steps(&mut first, 4);
        let saved = run.save(&mut first);
        let mut second = run.trainer(&to);
        resume(&mut second, &saved, 4);
        let (was, is) = (bits(&mut first), bits(&mut second));
        assert_eq!(was.len(), is.len());
        for ((name, was), (other, is)) in was.iter().zip(&is) {
            assert!(name == other && was == is, "{name} changed on the way");
        }
        let (on, again) = (steps(&mut first, 3), steps(&mut second, 3));
        for (a, b) in on.iter().zip(&again) {
            assert_eq!((a.step, a.epoch, a.lr, a.images), (b.step, b.epoch, b.lr, b.images));
            assert_eq!((a.loss_scale, a.applied), (b.loss_scale, b.applied));
            assert!((a.loss - b.loss).abs() < 0.02 * a.loss, "{a:?} {b:?}");
        }
        assert_eq!(again[0].step, 5);
        assert_eq!(on[0].loss_scale, 1024.0, "it has grown once");
    }
}

/// NovoGrad, LARS and AdamW learn on the CPU and on a device; checkpoints contain their state, so a
/// resumed run is bit-identical to an uninterrupted one.
#[test]
fn other_optimizers_learn_and_resume_bit_identically() {
    for (name, rate) in [("novograd", "0.02"), ("lars", "1.0"), ("adamw", "0.001")] {
        let optimizer = format!("solver.optimizer={name}");
        let rate = format!("solver.learning_rate={rate}");
        let trust = "solver.lars.trust_coefficient=0.02";
        let run = Run::new(&[&optimizer, &rate, trust, "solver.initial_loss_scale=1024"]);
        let mut losses = Vec::new();
        for open in [|| Backend::Cpu, on_device] {
            let mut first = run.trainer(&open());
            let before = steps(&mut first, 12);
            let saved = run.save(&mut first);
            let on = steps(&mut first, 3);
            let mut second = run.trainer(&open());
            resume(&mut second, &saved, 12);
            let again = steps(&mut second, 3);
            for (a, b) in on.iter().zip(&again) {
                assert_eq!((a.step, a.loss, a.lr), (b.step, b.loss, b.lr), "{name}");
            }
            let (went_on, resumed) = (bits(&mut first), bits(&mut second));
            let state = |name: &str| went_on.iter().any(|(state, _)| state == name);
            let is_novograd = name == "novograd";
            assert_eq!(state("novograd/averages") && state("novograd/steps"), is_novograd);
            let has_second = went_on.iter().any(|(state, _)| state.starts_with("second_moment/"));
            assert_eq!(has_second && state("adamw/steps"), name == "adamw");
            assert_same_run(&went_on, &resumed);
            losses.push(before.iter().map(|record| record.loss).collect::<Vec<_>>());
        }
        let [cpu, device] = &losses[..] else { panic!("two runs") };
        let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
        println!("{name}: f32 {cpu:?} fp16 {device:?}");
        assert!(mean(&cpu[8..]) < 0.95 * mean(&cpu[..4]), "{name} learns: {cpu:?}");
        let [f32, fp16] = [mean(cpu), mean(device)];
        assert!((f32 - fp16).abs() < 0.05 * f32, "{name}: {f32}, in fp16 {fp16}");
    }
}

/// Logging parameter statistics does not affect a run, and the statistics match its weights and
/// gradients.
#[test]
fn parameter_statistics_do_not_change_training() {
    for optimizer in ["sgd", "novograd", "adamw"] {
        let optimizer = format!("solver.optimizer={optimizer}");
        let set = ["train.micro_steps=2", &optimizer];
        for open in [|| Backend::Cpu, on_device] {
            let [plain, told] = without_and_with(&set, "train.log_parameters=true", open);
            assert!(plain.0.iter().all(|record| record.parameters.is_empty()));
            let record = &told.0[2];
            assert_eq!(record.parameters.len(), told.2.len());
            let squares = record.parameters.iter().map(|p| f64::from(p.gradient_norm).powi(2));
            let total = squares.sum::<f64>().sqrt();
            assert!((total / f64::from(record.grad_norm) - 1.0).abs() < 1e-4, "{total}");
            for (name, stats) in told.2.iter().zip(&record.parameters) {
                let (_, bytes) = told.1.iter().find(|(state, _)| state == name).expect("a weight");
                let values: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
                let norm = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
                let off = (f64::from(stats.weight_norm) - norm).abs();
                assert!(off < 1e-5 * (norm + 1e-9), "{name}: {stats:?} {norm}");
            }
        }
    }
}

/// Accuracies do not affect a run. They equal the CPU's except for a few predictions that depend on
/// rounding, and are equal for a step with one and with two micro-steps.
#[test]
fn accuracies_do_not_change_training() {
    let mut all = Vec::new();
    for micro in ["train.micro_steps=1", "train.micro_steps=2"] {
        for open in [|| Backend::Cpu, on_device] {
            let [plain, told] = without_and_with(&[micro], "train.accuracies=true", open);
            assert!(plain.0.iter().all(|record| record.accuracies.is_empty()));
            all.push(told.0[0].accuracies.clone());
        }
    }
    let cpu = &all[0];
    println!("{all:?}");
    assert!(cpu.len() >= 9, "{cpu:?}");
    for other in &all[1..] {
        for ((name, want), (of, got)) in cpu.iter().zip(other) {
            assert_eq!(name, of);
            assert!((want - got).abs() <= 0.03 * want.max(1.0), "{name}: {want} {got}");
        }
    }
}

/// Collecting tensors does not affect a run, even on a device, where it prevents steps from
/// overlapping. The recorded loss is unchanged.
#[test]
fn collected_tensors_do_not_change_training() {
    let rules = "train.log=[{of='gradients', every=1}, {of='activations', every=1}]";
    for open in [|| Backend::Cpu, on_device] {
        let [plain, told] = without_and_with(&["train.micro_steps=2"], rules, open);
        assert_eq!(plain.0.last().map(|record| record.loss), told.0.last().map(|r| r.loss));
    }
}

/// A loss weight multiplies the gradients of its loss, on the CPU, on a device and with
/// micro-steps: doubling all losses gives the same first update as twice the loss scale, and a loss
/// with weight 0 changes no weights.
#[test]
fn loss_weight_scales_its_gradients() {
    let all = ["objectness", "rpn_box_reg", "classifier", "box_reg", "mask"];
    let weights = |of: &dyn Fn(&str) -> f32| -> Vec<String> {
        all.iter().map(|loss| format!("loss_weights.{loss}={}", of(loss))).collect()
    };
    let first = |set: &[String], backend: &Backend| {
        let scale = "solver.initial_loss_scale=1024".to_string();
        let run = Run::new(&set.iter().chain([&scale]).map(String::as_str).collect::<Vec<_>>());
        let mut trainer = run.trainer(backend);
        let before = bits(&mut trainer);
        let record = steps(&mut trainer, 1).remove(0);
        let after = bits(&mut trainer);
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b);
        let moved: Vec<String> = moved.map(|((name, _), _)| name.clone()).collect();
        (record, moved)
    };
    for open in [|| Backend::Cpu, on_device] {
        let (plain, _) = first(&[], &open());
        let (twice, _) = first(&weights(&|_| 2.0), &open());
        assert_eq!(plain.losses, twice.losses, "losses are reported without their weights");
        assert_eq!(twice.loss, 2.0 * plain.loss);
        let ratio = twice.grad_norm / plain.grad_norm;
        assert!((ratio - 2.0).abs() < 0.01, "{ratio}");
        let decay = "solver.weight_decay=0".to_string();
        let mut masks_alone = weights(&|loss| if loss == "mask" { 1.0 } else { 0.0 });
        masks_alone.push(decay);
        let (record, moved) = first(&masks_alone, &open());
        let mask = record.losses.iter().find(|(name, _)| *name == "loss_mask").expect("a loss").1;
        assert_eq!(record.loss, mask);
        assert!(moved.iter().any(|name| name.starts_with("roi_heads.mask_predictor")));
        let other = ["rpn.", "roi_heads.box_predictor"];
        assert!(!moved.iter().any(|name| other.iter().any(|o| name.starts_with(o))), "{moved:?}");
    }
}

/// Box losses, box coders, schedules and a fixed loss scale from the config take effect on the CPU
/// and on a device: each changes the step, which is finite and applied.
#[test]
fn recipe_options_take_effect_on_cpu_and_device() {
    for open in [|| Backend::Cpu, on_device] {
        let of = |set: &[&str]| {
            let more = ["solver.initial_loss_scale=512", "solver.warmup_steps=2", "train.steps=4"];
            let run = Run::new(&[&more[..], set].concat());
            let mut trainer = run.trainer(&open());
            steps(&mut trainer, 4)
        };
        let box_loss = |records: &[StepRecord]| {
            records[0].losses.iter().find(|(name, _)| *name == "loss_box_reg").expect("a loss").1
        };
        // Proposals of an untrained model hardly overlap objects: with these thresholds some are
        // positive.
        let low = ["model.roi.fg_iou=0.1", "model.roi.bg_iou=0.1"];
        let plain = of(&low);
        let giou = of(&[&low[..], &["model.box_head.loss=giou"]].concat());
        let coder = of(&[&low[..], &["model.roi.box_weights=[20,20,10,10]"]].concat());
        assert!(box_loss(&giou) > 0.0 && box_loss(&giou) != box_loss(&plain));
        assert!(box_loss(&coder) > box_loss(&plain), "larger deltas");
        let cosine = of(&["solver.schedule=cosine", "solver.min_learning_rate=0.001"]);
        assert!(cosine[3].lr < cosine[2].lr, "{:?}", cosine[3]);
        let fixed = of(&["solver.dynamic_loss_scale=false", "solver.loss_scale_growth_interval=1"]);
        assert!(fixed.iter().all(|record| record.loss_scale == 512.0));
        for record in [&plain, &giou, &coder, &cosine, &fixed].into_iter().flatten() {
            assert!(record.applied && record.loss.is_finite(), "{record:?}");
        }
    }
}

/// On a device the averages are computed from the master weights; during evaluation they replace
/// the parameters, and afterwards both are restored bit-identically.
#[test]
fn ema_weights_replace_parameters_for_evaluation() {
    let run = Run::new(&["train.ema_decay=0.9", "train.ema_warmup_steps=0"]);
    let mut trainer = run.trainer(&on_device());
    let read = |trainer: &mut Trainer, name: &str| -> Vec<f32> {
        let state = trainer.state().fetch().expect("the state");
        state.get(name).expect(name).as_f32().to_vec()
    };
    let name = trainer.trained()[0].clone();
    let start = read(&mut trainer, &name);
    steps(&mut trainer, 1);
    let (trained, average) =
        (read(&mut trainer, &name), read(&mut trainer, &format!("ema/{name}")));
    let expected = start.iter().zip(&trained).map(|(e, p)| e + (1.0f64 - 0.9) as f32 * (p - e));
    assert_eq!(average, expected.collect::<Vec<f32>>());
    assert_ne!(average, trained);
    let before = bits(&mut trainer);
    trainer
        .state()
        .with_averages(true, |state| {
            let mut inside = StateSet::new();
            state.memory().expect("a device").download(&mut inside)?;
            let [weight, master] = ["", "master/"].map(|prefix| {
                inside.get(&format!("{prefix}{name}")).expect("a parameter").as_f32().to_vec()
            });
            assert_eq!(master, average);
            let is_rounded = |(w, e): (&f32, &f32)| (w - e).abs() <= e.abs() / 2048.0 + 1e-7;
            assert!(weight.iter().zip(&average).all(is_rounded), "kernels read other values");
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(bits(&mut trainer) == before, "the parameters were not restored");
    steps(&mut trainer, 1);
}

/// If the state is changed between steps, the following steps are still reported in order.
#[test]
fn steps_are_reported_in_order_after_state_change() {
    let run = Run::new(&[]);
    let (mut touched, mut whole) = (run.trainer(&on_device()), run.trainer(&on_device()));
    let mut records = steps(&mut touched, 3);
    touched.state().change(|_| Ok(())).unwrap_or_else(|e| panic!("{e}"));
    records.extend(steps(&mut touched, 3));
    let losses = |records: &[StepRecord]| records.iter().map(|r| r.loss).collect::<Vec<_>>();
    assert_eq!(losses(&records), losses(&steps(&mut whole, 6)));
}

/// If a kernel fails while steps are in flight, a later step and all steps after it return the
/// error, without waiting or panicking.
#[test]
fn device_fault_fails_a_later_step() {
    let run = Run::new(&[]);
    let device = Arc::new(test_gpu::open("A100 SEED=1"));
    let mut trainer = run.trainer(&Backend::Device(device.clone()));
    trainer.step(10).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(trainer.in_flight(), 1);
    let buffer =
        |access| Arg::Buffer(Touch { ptr: device.alloc(256).expect("memory"), bytes: 256, access });
    let reads_what_nobody_wrote = Launch::over("relu_mask_f16", 128)
        .arg(buffer(Access::Read))
        .arg(buffer(Access::Read))
        .arg(buffer(Access::Write))
        .len(128);
    let stream = device.stream().expect("a stream");
    device.launch(stream, &reads_what_nobody_wrote).expect("its error is reported when it runs");
    let told =
        |result: Result<StepRecord, _>| result.map_err(|e: engine::EngineError| e.to_string());
    let failed = (0..20).map(|_| told(trainer.step(100))).find_map(Result::err);
    let failed = failed.expect("the device is broken");
    assert!(failed.contains("relu_mask_f16") && failed.contains("uninitialised"), "{failed}");
    // The name of the first failing call depends on the device's progress, so it is ignored.
    let fault = |text: &str| text.split_once(": ").expect("a call and its error").1.to_string();
    let again = told(trainer.step(100)).expect_err("the error persists");
    assert_eq!(fault(&again), fault(&failed));
}

/// The allocated bytes equal the estimate, and a step allocates no memory.
#[test]
fn memory_estimate_equals_allocated_memory() {
    for set in [&[][..], &["train.batch_size=4", "train.images_per_group=2", "train.micro_steps=2"]]
    {
        let run = Run::new(set);
        let device = Arc::new(test_gpu::open("A100"));
        // Load the modules first, since their variables take memory.
        assert!(device.load_kernels(None).iter().all(|module| module.result.is_ok()));
        let free = || device.memory().expect("memory").free;
        let (before, allocations) = (free(), device.counts().allocations);
        let mut trainer = run.trainer(&Backend::Device(device.clone()));
        let need = trainer.memory();
        // The step counter and other small allocations are not in the estimate.
        let taken = before - free();
        let least = need.bytes();
        let most = least + 4096;
        println!("need {need:?}, {taken} taken in {} pieces", device.counts().allocations);
        assert!((least..=most).contains(&taken), "{need:?}, {taken} taken");
        assert!(device.counts().allocations - allocations < 10, "a few large pieces");
        let handles = || (device.stream().expect("one").0, device.event().expect("one").0);
        steps(&mut trainer, 2);
        let (now, (stream, event)) = (free(), handles());
        steps(&mut trainer, 12);
        assert_eq!(free(), now);
        assert_eq!(handles(), (stream + 1, event + 1));
        drop(trainer);
        assert_eq!(free(), before, "all memory is released");
    }
}
