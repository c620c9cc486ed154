//! Steps of several ranks on devices, as threads of one process: each rank computes its part of a
//! step, and all ranks have the same weights.

use std::sync::Arc;

use device::cuda::CudaDevice;
use device::{Device, Target};
use engine::metrics::StepRecord;
use engine::model::{Division, is_transient};
use engine::runtime::Backend;
use engine::train::Trainer;
use tests::step::Run;

/// Name and bytes.
type Tensor = (String, Vec<u8>);

/// The state of a rank after its last step.
struct After {
    records: Vec<StepRecord>,
    state: Vec<Tensor>,
}

/// Runs each rank on a thread with a separate pool for parallel loops, as in separate processes.
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

/// The largest difference between the tensors of two states, relative to the largest value of the
/// tensor.
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

fn losses(after: &After) -> Vec<Vec<u32>> {
    let bits = |record: &StepRecord| {
        let all = record.losses.iter().map(|(_, loss)| *loss);
        all.chain([record.loss, record.grad_norm]).map(f32::to_bits).collect()
    };
    after.records.iter().map(bits).collect()
}

/// With eighteen images the last batch of each epoch has two: only one of four groups is non-empty.
const TWENTY: [&str; 3] =
    ["train.batch_size=8", "train.images_per_group=2", "data.synthetic.train_images=18"];

/// On devices the all-reduce is in fp16, so results with one and several ranks agree only up to
/// rounding; all ranks of a run, and two equal runs, are bit-identical.
#[test]
fn device_ranks_match_single_device_step() {
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
    assert!(first[1].state == again[0].state, "two runs, different orders of blocks and streams");
}

/// All-reduces in a group of one rank only round gradients to fp16, even if images are missing in
/// the batch: this data set has two images for a batch of eight.
#[test]
fn single_rank_all_reduce_only_rounds_gradients() {
    for images in ["data.synthetic.train_images=18", "data.synthetic.train_images=2"] {
        let run = Run::new(&[&TWENTY[..], &["solver.initial_loss_scale=1024", images]].concat());
        let [plain, sums] = [false, true].map(|reducing| {
            let device = test_gpu::group("A100 SEED=3", 1).remove(0);
            let backend = Backend::Device(Arc::new(device));
            let division = Division::single(&run.config.train, &backend.target(&run.config));
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
