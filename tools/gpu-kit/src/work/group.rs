//! The stages about several ranks: sums over a group of one, and two ranks that share the GPU.

use std::fs;
use std::path::Path;
use std::process::Command;

use device::{AllReduce, DType, Device, DeviceError, DevicePtr, Task};
use graph::capture::{LaunchList, Work, capture};

use super::super::{InGroup, Kit};
use super::WorkArgs;

/// Replays of the captured sums, each of other values.
const REPLAYS: usize = 3;
/// Elements of each sum: a bucket of 25 MiB holds 13 million halves, and an odd number is harder.
const LEN: usize = (4 << 20) + 3;
/// NCCL that lets ranks share a GPU, if this variable is 1.
const SHARING: (u32, u32) = (2, 30);
const MULTI_RANK: &str = "NCCL_MULTI_RANK_GPU_ENABLE";

/// A sum in a graph: `to` holds what `from` does, since there is one rank.
struct Sum {
    task: AllReduce,
}

impl Sum {
    fn new(device: &dyn Device, len: usize, dtype: DType) -> Result<Self, DeviceError> {
        let bytes = len * dtype.size_bytes();
        let (from, to) = (device.alloc(bytes)?, device.alloc(bytes)?);
        Ok(Self { task: AllReduce { to, from, len, dtype } })
    }

    /// Small whole numbers, which halves hold exactly; others in each replay.
    fn values(&self, replay: usize) -> Vec<u8> {
        let value = |i: usize| ((i * 7 + replay * 13) % 2039) as u16;
        match self.task.dtype {
            // The bits of positive halves, all of them finite.
            DType::F16 => (0..self.task.len).flat_map(|i| value(i).to_ne_bytes()).collect(),
            _ => (0..self.task.len).flat_map(|i| f32::from(value(i)).to_ne_bytes()).collect(),
        }
    }
}

/// Sums over a group of one rank in a captured graph, replayed, then the group is left.
pub(super) fn sums(kit: &Kit, quick: bool) -> Result<String, String> {
    // First, so that what is absent after it can only be the library.
    (kit.open)(None).map_err(|e| e.to_string())?;
    let group = match (kit.join)() {
        Err(DeviceError::Absent(why)) => return Ok(format!("SKIPPED: {why}")),
        joined => joined.map_err(|e| e.to_string())?,
    };
    replayed(&group, if quick { 1027 } else { LEN }).map_err(|e| e.to_string())
}

fn replayed(group: &InGroup, len: usize) -> Result<String, DeviceError> {
    let device = group.device.as_ref();
    let sums = [Sum::new(device, len, DType::F16)?, Sum::new(device, len, DType::F32)?];
    let mut list = LaunchList::default();
    for sum in &sums {
        list.push(Work::new("a sum over ranks", vec![Task::AllReduce(sum.task)]));
    }
    let graph = capture(device, &list).unwrap_or_else(|e| panic!("{e}"));
    let stream = device.stream()?;
    let staging = device.alloc_pinned(sums[1].task.bytes())?;
    for replay in 0..REPLAYS {
        for sum in &sums {
            let values = sum.values(replay);
            device.write_pinned(staging, 0, &values);
            device.upload(stream, sum.task.from, staging, 0, values.len())?;
            // The staging memory is written again for the next one.
            device.synchronize()?;
        }
        device.replay(graph.handle, stream)?;
        for sum in &sums {
            let mut found = vec![0; sum.task.bytes()];
            device.download(stream, sum.task.to, &mut found)?;
            let dtype = sum.task.dtype;
            assert!(found == sum.values(replay), "replay {}: {dtype:?} sum is off", replay + 1);
        }
    }
    (group.leave)()?;
    let refused = device.replay(graph.handle, stream);
    assert!(refused.is_err(), "a graph of a group that was left replays");
    let ptrs: [DevicePtr; 4] =
        [sums[0].task.from, sums[0].task.to, sums[1].task.from, sums[1].task.to];
    ptrs.iter().try_for_each(|ptr| device.free(*ptr))?;
    device.free_pinned(staging)?;
    let through = &group.through;
    Ok(format!(
        "figure: {through}, one rank: {REPLAYS} replays right in every bit; left, and refuses to \
         replay"
    ))
}

/// Two runs of two ranks on one GPU end with the same weights.
pub(super) fn two_ranks(kit: &Kit, args: &WorkArgs) -> Result<String, String> {
    (kit.open)(None).map_err(|e| e.to_string())?;
    let (major, minor) = match (kit.nccl)() {
        Err(DeviceError::Absent(why)) => return Ok(format!("SKIPPED: {why}")),
        version => version.map_err(|fault| fault.to_string())?,
    };
    if (major, minor) < SHARING {
        let (a, b) = SHARING;
        return Ok(format!(
            "SKIPPED: ranks share a GPU from NCCL {a}.{b} on, and here is {major}.{minor}"
        ));
    }
    let who = format!("two ranks on one GPU, NCCL {major}.{minor}");
    let onegraph = args.onegraph.as_ref().ok_or("the command onegraph is not named")?;
    let folder = tempfile::tempdir().map_err(|e| format!("a folder to work in: {e}"))?;
    let steps = if args.quick { 2 } else { 20 };
    let [first, second] =
        ["first", "second"].map(|run| weights(onegraph, folder.path(), run, steps));
    let (first, second) = (first?, second?);
    assert!(first == second, "two runs of {who} end with other weights");
    let kib = first.len() >> 10;
    Ok(format!("figure: {who}: {steps} steps twice, {kib} KiB of weights the same in every bit"))
}

/// The weights after a run of the smallest model.
fn weights(onegraph: &Path, folder: &Path, run: &str, steps: u64) -> Result<Vec<u8>, String> {
    let mut command = Command::new(onegraph);
    command.args(["train", "micro", "--device", "cuda", "--ranks", "2"]);
    command.current_dir(folder).env(MULTI_RANK, "1");
    let set = [
        format!("train.steps={steps}"),
        "train.batch_size=4".into(),
        "train.images_per_group=2".into(),
        format!("train.name={run}"),
        "data.synthetic.dir=data".into(),
    ];
    command.args(set.iter().flat_map(|value| ["--set", value]));
    // Its output belongs in the log of the stage.
    let status = command.status().map_err(|e| format!("{}: {e}", onegraph.display()))?;
    if !status.success() {
        return Err(format!("the {run} run ended with {status}"));
    }
    let file = format!("runs/{run}/checkpoints/step_{steps:08}/model.safetensors");
    fs::read(folder.join(&file)).map_err(|e| format!("{file}: {e}"))
}
