//! Reads files of tensors: safetensors, PyTorch's zip archive and older format, Detectron and
//! detectron2 pickles, and NumPy archives. The first bytes determine the format.

mod array;
mod legacy;
mod npz;
mod numpy;
mod state_dict;
mod tensors;
mod torch;
mod write;
mod zip;

use std::collections::BTreeMap;

pub use tensors::CATEGORIES;
pub(super) use tensors::safetensors_bytes;
pub(super) use write::torch_bytes;

/// Shape and values of a tensor, in PyTorch's layout.
pub type Values = (Vec<usize>, Vec<f32>);

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    /// Safetensors.
    Safetensors,
    /// The zip archive that `torch.save` writes since PyTorch 1.6.
    TorchZip,
    /// The format that `torch.save` wrote before PyTorch 1.6: pickles, then storages.
    TorchLegacy,
    /// A pickle with NumPy arrays: Detectron's and detectron2's `.pkl`.
    Pickle,
    /// The zip archive of `numpy.savez`: Tensorpack's `.npz`.
    Npz,
}

/// The floating-point tensors of a file, and the JSON text with its classes.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) container: Container,
    pub(super) tensors: BTreeMap<String, Values>,
    pub(super) categories: Option<String>,
}

/// Reads the tensors of a file, except the step counters of batch norms and moving averages.
///
/// # Errors
/// A message: an unknown format, a damaged file, or tensors that f32 cannot represent.
pub(super) fn read(bytes: &[u8]) -> Result<Contents, String> {
    let container = container_of(bytes);
    let (tensors, categories) = match container {
        Container::Safetensors => tensors::read(bytes)?,
        Container::TorchZip => zip::read(bytes)?,
        Container::TorchLegacy => (legacy::read(bytes)?, None),
        Container::Pickle => (numpy::read(bytes)?, None),
        Container::Npz => (npz::read(bytes)?, None),
    };
    if tensors.is_empty() {
        return Err("it holds no tensors".into());
    }
    let mut unwrapped = BTreeMap::new();
    for (name, values) in tensors {
        let bare = bare(&name);
        if unwrapped.insert(bare.clone(), values).is_some() {
            return Err(format!("it holds `{bare}` twice, also as `{name}`: save a single model"));
        }
    }
    Ok(Contents { container, tensors: unwrapped, categories })
}

/// Keys under which training scripts and model zoos store the state dict, and names of modules that
/// contain the model, which become prefixes of tensor names: torchvision's references, detectron2,
/// Lightning, Detectron, moving averages.
const HOLDERS: [&str; 18] = [
    "model",
    "state_dict",
    "blobs",
    "model_state_dict",
    "model_state",
    "module",
    "net",
    "network",
    "detector",
    "weights",
    "ema_model",
    "model_ema",
    "ema_state_dict",
    "ema",
    "averaged_model",
    "online_model",
    "student",
    "teacher",
];

/// PyTorch modules that wrap other modules; they may occur anywhere in a name.
const WRAPPERS: [&str; 4] =
    ["module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];

/// The name of a tensor without wrappers and prefixes.
fn bare(name: &str) -> String {
    let mut parts = name.split('.').filter(|part| !WRAPPERS.contains(part)).peekable();
    while parts.next_if(|part| HOLDERS.contains(part)).is_some() {}
    let bare = parts.collect::<Vec<_>>().join(".");
    if bare.is_empty() { name.to_string() } else { bare }
}

/// The format of a file, from its first bytes.
fn container_of(bytes: &[u8]) -> Container {
    const ZIP: &[u8] = b"PK\x03\x04";
    // Pickles of protocols 0 and 1 begin without a version number, with the opcodes of the root
    // dict.
    const PICKLES: [&[u8]; 4] = [b"\x80", b"(dp", b"(d", b"}q"];
    // A safetensors file begins with the header length (8 bytes, little-endian, the last one 0),
    // then the brace that opens the header.
    if bytes.get(7..9) == Some(b"\0{") {
        Container::Safetensors
    } else if bytes.starts_with(ZIP) {
        if npz::is_npz(bytes) { Container::Npz } else { Container::TorchZip }
    } else if legacy::is_legacy(bytes) {
        Container::TorchLegacy
    } else if PICKLES.iter().any(|magic| bytes.starts_with(magic)) {
        Container::Pickle
    } else {
        Container::Safetensors
    }
}

/// True if a tensor is a step counter, of PyTorch's batch norms or of a moving average of the
/// model.
fn is_counter(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    ["num_batches_tracked", "n_averaged", "initted", "step"].contains(&last)
}

#[cfg(test)]
mod tests;
