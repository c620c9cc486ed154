//! Tensors as the archive that `torch.load(weights_only=True)` reads.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::Values;
use super::zip::CATEGORIES_ENTRY;
use crate::weights::pickle::Writer;

/// Folder of all entries; PyTorch names it after the file, and reads any.
const FOLDER: &str = "archive";
/// Alignment of the storages, as PyTorch's.
const ALIGNMENT: u16 = 64;

/// Tensors in this order as a state dict: a pickle, and one storage for each; the classes, in JSON,
/// lie next to it.
///
/// # Errors
/// In words, of the zip writer; none in practice.
pub(in crate::weights) fn torch_bytes(
    tensors: &[(String, Values)],
    categories: Option<&str>,
) -> Result<Vec<u8>, String> {
    // The time is fixed: the same weights give the same bytes.
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default())
        .with_alignment(ALIGNMENT);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let mut add = |name: &str, bytes: &[u8]| -> Result<(), String> {
        let name = format!("{FOLDER}/{name}");
        archive.start_file(name, options).map_err(|e| e.to_string())?;
        archive.write_all(bytes).map_err(|e| e.to_string())
    };
    add("data.pkl", &state_dict(tensors))?;
    add("byteorder", b"little")?;
    for (key, (_, (_, values))) in tensors.iter().enumerate() {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        add(&format!("data/{key}"), &bytes)?;
    }
    add("version", b"3\n")?;
    categories.map_or(Ok(()), |classes| add(CATEGORIES_ENTRY, classes.as_bytes()))?;
    let written = archive.finish().map_err(|e| e.to_string())?;
    Ok(written.into_inner())
}

/// The pickle of a dict of tensors, each in a storage of its own.
fn state_dict(tensors: &[(String, Values)]) -> Vec<u8> {
    let mut pickle = Writer::new();
    pickle.dict(|pickle| {
        for (key, (name, (shape, values))) in tensors.iter().enumerate() {
            pickle.text(name);
            pickle.global("torch._utils", "_rebuild_tensor_v2");
            pickle.tuple(|args| {
                args.tuple(|storage| {
                    storage.text("storage");
                    storage.global("torch", "FloatStorage");
                    storage.text(&key.to_string());
                    storage.text("cpu");
                    storage.int(values.len());
                });
                args.persistent();
                args.int(0);
                args.tuple(|sizes| shape.iter().for_each(|side| sizes.int(*side)));
                let strides = super::array::contiguous(shape).unwrap_or_default();
                args.tuple(|all| strides.iter().for_each(|stride| all.int(*stride)));
                args.false_();
                args.global("collections", "OrderedDict");
                args.tuple(|_| ());
                args.reduce();
            });
            pickle.reduce();
        }
    });
    pickle.finish()
}
