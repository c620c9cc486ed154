//! The emulated GPUs of this machine, as configured by environment variables.

use std::env;
use std::sync::{LazyLock, PoisonError, RwLock};

use super::settings::Settings;

/// One GPU.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) model: Model,
    pub(super) settings: &'static Settings,
}

/// A GPU model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model {
    key: &'static str,
    /// NVIDIA's name of the model.
    pub(super) name: &'static str,
    /// Compute capability, major and minor.
    pub(super) capability: (i32, i32),
    multiprocessors: i32,
    l2_bytes: i32,
    /// Maximum shared memory per block.
    pub(super) shared_bytes: u32,
    /// Bytes of device memory.
    pub(super) memory_bytes: usize,
}

const MIB: i32 = 1 << 20;
const MODELS: [Model; 3] = [
    Model {
        key: "A100",
        name: "NVIDIA A100-SXM4-80GB",
        capability: (8, 0),
        multiprocessors: 108,
        l2_bytes: 40 * MIB,
        shared_bytes: 163 << 10,
        memory_bytes: 80_000_000_000,
    },
    Model {
        key: "H100",
        name: "NVIDIA H100 80GB HBM3",
        capability: (9, 0),
        multiprocessors: 132,
        l2_bytes: 50 * MIB,
        shared_bytes: 227 << 10,
        memory_bytes: 80_000_000_000,
    },
    Model {
        key: "H200",
        name: "NVIDIA H200",
        capability: (9, 0),
        multiprocessors: 132,
        l2_bytes: 60 * MIB,
        shared_bytes: 227 << 10,
        memory_bytes: 141_000_000_000,
    },
];

impl Model {
    /// An attribute by its number.
    pub(super) fn attribute(&self, attribute: i32) -> Option<i32> {
        Some(match attribute {
            // Maximum threads per block, and maximum block extents.
            1..=3 => 1024,
            4 => 64,
            // Grid extents.
            5 => i32::MAX,
            6 | 7 => 65535,
            8 => 48 << 10,
            // Constant memory.
            9 => 64 << 10,
            10 => 32,
            // Registers per block.
            12 => 65536,
            // Clock rate in kHz.
            13 => 1_410_000,
            16 => self.multiprocessors,
            // Integrated GPU; compute mode.
            18 | 20 => 0,
            // Can map host memory; concurrent kernels; unified addressing.
            19 | 31 | 41 => 1,
            38 => self.l2_bytes,
            39 => 2048,
            40 => 3,
            75 => self.capability.0,
            76 => self.capability.1,
            // Stream priorities supported.
            78 => 1,
            81 => self.shared_bytes as i32 + 1024,
            82 => 65536,
            97 => self.shared_bytes as i32,
            _ => return None,
        })
    }
}

/// The GPUs configured by the environment, then the GPUs added by tests in this process. GPUs are
/// never removed.
static GPUS: LazyLock<RwLock<Vec<&'static Gpu>>> = LazyLock::new(|| {
    let installed = env::var("DRIVER_GPUS").unwrap_or_else(|_| "A100".into());
    let visible = env::var("CUDA_VISIBLE_DEVICES").ok();
    let settings: &Settings = Box::leak(Box::new(Settings::of_environment()));
    let models = select(&installed, settings.memory_bytes, visible.as_deref()).into_iter();
    RwLock::new(models.map(|model| &*Box::leak(Box::new(Gpu { model, settings }))).collect())
});

/// A GPU visible to this process, by its number.
pub(super) fn gpu(number: usize) -> Option<&'static Gpu> {
    GPUS.read().unwrap_or_else(PoisonError::into_inner).get(number).copied()
}

/// The number of GPUs visible to this process.
pub(super) fn count() -> usize {
    GPUS.read().unwrap_or_else(PoisonError::into_inner).len()
}

/// Adds a GPU for one test; returns its number.
///
/// Panics if the words do not name a model.
pub(super) fn add(words: &str) -> usize {
    let (model, settings) = Settings::of_words(words);
    let model = named(model, settings.memory_bytes);
    // The short name, as in plans made without a GPU.
    let model = Model { name: model.key, ..model };
    let settings: &Settings = Box::leak(Box::new(settings));
    let mut gpus = GPUS.write().unwrap_or_else(PoisonError::into_inner);
    gpus.push(Box::leak(Box::new(Gpu { model, settings })));
    gpus.len() - 1
}

/// The CUDA version of the driver.
pub(super) fn version() -> i32 {
    env::var("DRIVER_VERSION").ok().and_then(|text| text.parse().ok()).unwrap_or(12020)
}

/// The newest PTX version, times 10, that a driver of this version compiles.
pub(super) fn newest_ptx(version: i32) -> u32 {
    match version {
        ..12000 => 78,
        12000..12060 => 80 + (version % 1000 / 10) as u32,
        12060..12070 => 85,
        12070..12080 => 86,
        12080..12090 => 87,
        12090..13000 => 88,
        _ => 90,
    }
}

/// A model by its name, such as `H100`, or `A100:14` for 14 SMs.
fn named(name: &str, memory: Option<usize>) -> Model {
    let (key, part) = name.split_once(':').map_or((name, None), |(k, n)| (k, Some(n)));
    let found = MODELS.iter().find(|model| model.key == key).cloned();
    let mut model = found.unwrap_or_else(|| panic!("DRIVER_GPUS: {name:?} is not a known model"));
    if let Some(part) = part {
        let count = part.parse().ok().filter(|n| (1..=model.multiprocessors).contains(n));
        model.multiprocessors =
            count.unwrap_or_else(|| panic!("DRIVER_GPUS: {name:?} has an invalid number of SMs"));
    }
    model.memory_bytes = memory.unwrap_or(usize::MAX).min(model.memory_bytes);
    model
}

fn select(installed: &str, memory: Option<usize>, visible: Option<&str>) -> Vec<Model> {
    let names = installed.split(',').map(str::trim).filter(|name| !name.is_empty());
    let gpus: Vec<Model> = names.map(|name| named(name, memory)).collect();
    let Some(visible) = visible else { return gpus };
    // As in the real driver, the first invalid entry and all later entries are ignored.
    let chosen = visible.split(',').map(|entry| entry.trim().parse::<usize>().ok());
    chosen.map_while(|number| gpus.get(number?).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(installed: &str, visible: Option<&str>) -> Vec<&'static str> {
        select(installed, None, visible).iter().map(|model| model.key).collect()
    }

    #[test]
    fn visible_devices_limits_emulated_gpus() {
        assert_eq!(keys("A100,H200", None), ["A100", "H200"]);
        assert_eq!(keys("A100, H200", Some("1,0")), ["H200", "A100"]);
        assert_eq!(keys("A100,H200", Some("1,7,0")), ["H200"], "as if the list ended there");
        for none in ["", "-1", "GPU-0"] {
            assert_eq!(keys("A100", Some(none)), [""; 0]);
        }
        assert_eq!(keys("", None), [""; 0]);
        assert_eq!(select("H100", Some(1 << 20), None)[0].memory_bytes, 1 << 20);
        assert_eq!(select("A100:14", None, None)[0].multiprocessors, 14);
    }

    #[test]
    fn driver_accepts_ptx_up_to_its_version() {
        let newest = [12010, 12020, 12050, 12060, 12080, 13000].map(newest_ptx);
        assert_eq!(newest, [81, 82, 85, 85, 87, 90]);
    }
}
