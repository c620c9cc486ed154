//! Writes tensors as an archive for `torch.load(weights_only=True)`.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::Values;
use super::array::contiguous;
use super::zip::CATEGORIES_ENTRY;

/// Folder of all entries. PyTorch names it after the file, but accepts any name.
const FOLDER: &str = "archive";
/// Alignment of the storages, as in PyTorch.
const ALIGNMENT: u16 = 64;

/// Serializes tensors as a state dict: a pickle, and one storage per tensor, in this order. The
/// classes (JSON) are a separate entry.
///
/// # Errors
/// A message from the zip writer; none in practice.
pub(in crate::weights) fn torch_bytes(
    tensors: &[(String, Values)],
    categories: Option<&str>,
) -> Result<Vec<u8>, String> {
    // The time stamp is fixed, so that equal weights give equal bytes.
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

/// Pickles a dict of tensors, each with its own storage, in protocol 2, which all versions of
/// PyTorch read.
fn state_dict(tensors: &[(String, Values)]) -> Vec<u8> {
    let mut pickle = b"\x80\x02}(".to_vec();
    for (key, (name, (shape, values))) in tensors.iter().enumerate() {
        text(&mut pickle, name);
        // A function and its arguments; the first argument is the storage's name.
        pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        text(&mut pickle, "storage");
        pickle.extend(b"ctorch\nFloatStorage\n");
        text(&mut pickle, &key.to_string());
        text(&mut pickle, "cpu");
        count(&mut pickle, values.len());
        // The persistent id of the storage is followed by offset, shape and strides.
        pickle.extend(b"tQ");
        count(&mut pickle, 0);
        for counts in [shape, &contiguous(shape).unwrap_or_default()] {
            pickle.push(b'(');
            counts.iter().for_each(|value| count(&mut pickle, *value));
            pickle.push(b't');
        }
        // No gradient, and an empty `OrderedDict` of hooks.
        pickle.extend(b"\x89ccollections\nOrderedDict\n(tRtR");
    }
    pickle.extend(b"u.");
    pickle
}

fn text(pickle: &mut Vec<u8>, text: &str) {
    pickle.push(b'X');
    pickle.extend((text.len() as u32).to_le_bytes());
    pickle.extend(text.as_bytes());
}

/// Pickles an integer as nine bytes: eight bytes and a sign byte.
fn count(pickle: &mut Vec<u8>, value: usize) {
    pickle.extend([0x8a, 9]);
    pickle.extend((value as u64).to_le_bytes());
    pickle.push(0);
}
