//! Steps of several ranks, in the threads of one process: each rank has its part of a step and
//! connections to the others, and all have the same weights.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use device::cuda::CudaDevice;
use device::{Device, Ranks, Target};
use engine::metrics::StepRecord;
use engine::model::{Division, is_transient};
use engine::runtime::Backend;
use engine::train::Trainer;
use ranks::{Group, JoinOptions, Launch, Launcher};
use tests::step::Run;

/// Name and bytes.
type Tensor = (String, Vec<u8>);

/// The state of a rank after its last step.
struct After {
    records: Vec<StepRecord>,
    state: Vec<Tensor>,
}

/// Runs `steps` steps on ranks of the CPU, from step `from` on if there is a state to continue
/// from.
fn on_cpu(run: &Run, count: usize, steps: u64, from: Option<(&After, u64)>) -> Vec<After> {
    let rank = |group: Group| {
        let mut trainer = trainer(run, &group, Arc::default());
        if let Some((before, steps_done)) = from {
            restore(&mut trainer, before, steps_done);
        }
        after(&mut trainer, steps)
    };
    in_groups(count, rank)
}

/// The trainer of one rank on the CPU.
fn trainer(run: &Run, group: &Group, asked: Arc<AtomicBool>) -> Trainer {
    let ranks = Ranks { rank: group.rank(), count: group.ranks() };
    let mut division = Division::new(&run.config.train, &Target::Cpu, ranks).expect("it fits");
    division.group = group.clone();
    Trainer::of_rank(&run.config, &run.data, &Backend::Cpu, division, asked).expect("it fits")
}

/// Joins ranks with one another, and lets each do something in a thread of its own.
fn in_groups<R: Send>(count: usize, run: impl Fn(Group) -> R + Sync + Send + Copy) -> Vec<R> {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let job = format!("{} {}", std::process::id(), RUNS.fetch_add(1, Ordering::SeqCst));
    let lookup = Arc::new(move |name: &str| (name == "ONEGRAPH_JOB").then(|| job.clone()));
    let options = JoinOptions { lookup, ..JoinOptions::default() };
    in_threads((0..count).collect(), |rank| {
        let (local_rank, local_ranks) = (rank, count);
        let launcher = Launcher::Torchrun;
        let launch = Launch { rank, ranks: count, local_rank, local_ranks, launcher };
        let group = Group::join(&launch, options.clone()).expect("all come");
        let result = run(group.clone());
        group.barrier("the end").expect("all come to their end");
        group.leave(None);
        result
    })
}

/// Runs each rank in a thread with threads of its own for parallel loops, as processes have.
fn in_threads<T: Send, R: Send>(of_ranks: Vec<T>, run: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    let run = &run;
    std::thread::scope(|scope| {
        let start = |of_rank: T| {
            scope.spawn(move || {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
                pool.expect("a pool").install(|| run(of_rank))
            })
        };
        let threads: Vec<_> = of_ranks.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank")).collect()
    })
}

fn after(trainer: &mut Trainer, steps: u64) -> After {
    let records = tests::step::steps(trainer, steps);
    let state = trainer.state().fetch().expect("the state").without(is_transient);
    let state = state.iter().map(|(name, t)| (name.to_string(), t.bytes().to_vec())).collect();
    After { records, state }
}

/// The trainer of one rank of a group of devices.
fn trainer_on(run: &Run, device: CudaDevice) -> Trainer {
    let (ranks, target) = (device.ranks(), Target::Gpu(device.gpu().clone()));
    let backend = Backend::Device(Arc::new(device));
    let train = &run.config.train;
    let division = Division::new(train, &target, ranks).expect("it fits");
    Trainer::of_rank(&run.config, &run.data, &backend, division, Arc::default()).expect("it fits")
}

fn on_devices(run: &Run, count: usize, steps: u64, seed: u64) -> Vec<After> {
    let devices = test_gpu::group(&format!("A100 SEED={seed}"), count);
    in_threads(devices, |device| after(&mut trainer_on(run, device), steps))
}

/// The largest difference of a tensor of two states, over the tensor's largest value.
fn distance(a: &After, b: &After) -> f32 {
    let of = |(a, b): (&Tensor, &Tensor)| {
        assert_eq!(a.0, b.0);
        let floats = |t: &Tensor| -> Vec<f32> { bytemuck::pod_collect_to_vec(&t.1) };
        let (a, b) = (floats(a), floats(b));
        let largest = a.iter().fold(1e-6_f32, |most, x| most.max(x.abs()));
        let apart = a.iter().zip(&b).fold(0.0_f32, |most, (x, y)| most.max((x - y).abs()));
        apart / largest
    };
    a.state.iter().zip(&b.state).map(of).fold(0.0, f32::max)
}

fn restore(trainer: &mut Trainer, before: &After, steps_done: u64) {
    let change = |state: &mut graph::StateSet| {
        for (name, bytes) in &before.state {
            state.get_mut(name).expect("the same model").bytes_mut().copy_from_slice(bytes);
        }
        Ok(())
    };
    trainer.state().change(change).expect("restored");
    trainer.resume_at(steps_done);
}

fn losses(after: &After) -> Vec<Vec<u32>> {
    let bits = |record: &StepRecord| {
        let all = record.losses.iter().map(|(_, loss)| *loss);
        all.chain([record.loss, record.grad_norm]).map(f32::to_bits).collect()
    };
    after.records.iter().map(bits).collect()
}

/// Eighteen images leave a last batch of two in each epoch: one group of four holds images.
const TWENTY: [&str; 3] =
    ["train.batch_size=8", "train.images_per_group=2", "data.synthetic.train_images=18"];

#[test]
fn weights_after_twenty_steps_do_not_depend_on_the_number_of_ranks() {
    let run = Run::new(&TWENTY);
    let alone = on_cpu(&run, 1, 20, None).remove(0);
    assert!(alone.records.iter().any(|record| record.images == 2), "a partial batch");
    for count in [2, 4] {
        for (rank, after) in on_cpu(&run, count, 20, None).iter().enumerate() {
            assert_eq!(losses(after), losses(&alone), "losses of rank {rank} of {count}");
            assert!(after.state == alone.state, "weights of rank {rank} of {count}");
        }
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let run = Run::new(&TWENTY);
    let whole = on_cpu(&run, 1, 6, None).remove(0);
    let two = on_cpu(&run, 2, 3, None).remove(1);
    for count in [1, 4] {
        let resumed = on_cpu(&run, count, 3, Some((&two, 3))).remove(0);
        assert!(resumed.state == whole.state, "resumed on {count} ranks");
    }
}

/// On devices the sum over ranks is of halves, so one rank and several agree up to rounding; ranks
/// agree with one another in every bit, and so do two runs.
#[test]
fn ranks_on_devices_make_the_step_of_one_device() {
    let set = [&TWENTY[..], &["solver.initial_loss_scale=1024"]].concat();
    let run = Run::new(&set);
    let alone = on_devices(&run, 1, 1, 3).remove(0);
    for count in [2, 4] {
        let ranks = on_devices(&run, count, 1, 3);
        for (rank, after) in ranks.iter().enumerate() {
            assert!(after.state == ranks[0].state, "weights of rank {rank} of {count}");
            assert_eq!(losses(after), losses(&ranks[0]), "losses of rank {rank} of {count}");
        }
        let apart = distance(&alone, &ranks[0]);
        assert!(apart < 2e-3, "{count} ranks are {apart} from one");
        let loss = |after: &After| after.records[0].loss;
        assert!((loss(&alone) - loss(&ranks[0])).abs() < 1e-4 * loss(&alone), "{count} ranks");
    }
    let (first, again) = (on_devices(&run, 2, 3, 3), on_devices(&run, 2, 3, 8));
    assert!(first[1].state == again[0].state, "two runs, in other orders of blocks and streams");
}

/// The sums over a group of one rank change nothing but the rounding of gradients to halves, also
/// where images are missing from the batch: this data set has two for a batch of eight.
#[test]
fn one_rank_that_sums_makes_the_step_of_one_that_does_not() {
    for images in ["data.synthetic.train_images=18", "data.synthetic.train_images=2"] {
        let run = Run::new(&[&TWENTY[..], &["solver.initial_loss_scale=1024", images]].concat());
        let [plain, sums] = [false, true].map(|reducing| {
            let device = test_gpu::group("A100 SEED=3", 1).remove(0);
            let backend = Backend::Device(Arc::new(device));
            let division = Division::alone(&run.config.train, &backend.target(&run.config));
            let division = if reducing { division.reducing() } else { division };
            let mut trainer =
                Trainer::of_rank(&run.config, &run.data, &backend, division, Arc::default())
                    .expect("it fits");
            after(&mut trainer, 2)
        });
        let apart = distance(&plain, &sums);
        assert!(apart > 0.0 && apart < 2e-3, "{images}: {apart} apart");
        for (plain, sums) in plain.records.iter().zip(&sums.records) {
            assert!((plain.loss - sums.loss).abs() < 1e-5 * plain.loss, "{plain:?}, {sums:?}");
            assert!((plain.grad_norm - sums.grad_norm).abs() < 1e-4 * plain.grad_norm, "{sums:?}");
        }
    }
}

/// The step's own sums carry the request, so all ranks know of it after the same step.
#[test]
fn a_request_to_stop_on_one_rank_stops_all_after_the_same_step() {
    let run = Run::new(&TWENTY);
    let rank = |group: Group| {
        let asked = Arc::new(AtomicBool::new(false));
        let mut trainer = trainer(&run, &group, asked.clone());
        while trainer.stop_after().is_none() {
            asked.store(group.rank() == 1 && trainer.steps_done() == 3, Ordering::Relaxed);
            trainer.step(20).expect("a step");
        }
        (trainer.stop_after(), trainer.steps_done())
    };
    assert_eq!(in_groups(2, rank), [(Some(4), 4); 2]);
}
