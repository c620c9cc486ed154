//! An archive as `numpy.savez` and `savez_compressed` write it, for tests.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::Values;

/// The bytes of an archive with these arrays.
pub(in crate::weights) fn npz(
    tensors: &BTreeMap<String, Values>,
    method: CompressionMethod,
) -> Vec<u8> {
    let options = SimpleFileOptions::default().compression_method(method);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, (shape, values)) in tensors {
        let sides: String = shape.iter().map(|side| format!("{side}, ")).collect();
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({sides}), }}");
        // The elements begin at a multiple of 64.
        let header =
            format!("{text:<width$}\n", width = (text.len() + 11).next_multiple_of(64) - 11);
        archive.start_file(format!("{name}.npy"), options).unwrap();
        archive.write_all(b"\x93NUMPY\x01\0").unwrap();
        archive.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
        archive.write_all(header.as_bytes()).unwrap();
        archive.write_all(bytemuck::cast_slice(values)).unwrap();
    }
    archive.finish().unwrap().into_inner()
}
