//! `onegraph inspect STORE`: what a store holds, and whether it is whole.

use std::path::Path;

use dali::Store;

use crate::EngineError;

/// Damaged images that are named one by one.
const NAMED: usize = 20;

/// Prints the store at `path`; with `verify`, reads all of it.
pub(super) fn run(path: &Path, verify: bool) -> Result<(), EngineError> {
    let store = Store::open(path)?;
    let header = store.header();
    let bytes: u64 = header.files.values().map(|file| file.bytes).sum();
    let mib = bytes as f64 / f64::from(1 << 20);
    let checksums = match store.has_checksums() {
        true => "a checksum for each image",
        false => "no checksums for images: pixels unverified",
    };
    let text = format!(
        "store of version {}: {} images ({} without objects), {} objects ({} crowd), {} \
         categories, {mib:.1} MiB, {checksums}\n",
        header.version,
        header.num_images,
        header.num_empty_images,
        header.num_annotations,
        header.num_crowd,
        header.categories.len(),
    );
    super::super::print(&text)?;
    if !verify {
        return Ok(());
    }
    let mut faults = store.pixel_faults();
    let count = faults.len();
    if count > 1 {
        let named: String = faults.iter().take(NAMED).map(|fault| format!("{fault}\n")).collect();
        super::super::print(&format!("{named}{count} of {} images are damaged\n", store.len()))?;
    }
    match faults.is_empty() {
        true => super::super::print("every image has its checksum and decodes\n"),
        false => Err(faults.swap_remove(0).into()),
    }
}
