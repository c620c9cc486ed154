//! `onegraph inspect STORE`: shows the contents of a store, and verifies it on request.

use std::path::Path;

use dali::{DaliError, Store};

use crate::EngineError;

/// Maximum number of damaged images in the list.
const NAMED: usize = 20;

/// Describes the store at `path`. With `verify`, decodes every image, and compares it with the
/// image files in `images`, if given.
pub(super) fn run(path: &Path, verify: bool, images: Option<&Path>) -> Result<(), EngineError> {
    let store = Store::open(path)?;
    let header = store.header();
    let bytes: u64 = header.files.values().map(|file| file.bytes).sum();
    let mib = bytes as f64 / f64::from(1 << 20);
    let text = format!(
        "store of version {}: {} images ({} without objects), {} objects ({} crowd), {} \
         categories, {mib:.1} MiB\n",
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
    of_all(store.pixel_faults(), "damaged", &store)?;
    super::super::print("every image matches its checksum and can be decoded\n")?;
    let Some(images) = images else { return Ok(()) };
    of_all(store.source_faults(images), "different from the files", &store)?;
    super::super::print(&format!("all images match their files in {}\n", images.display()))
}

/// Returns the first error. If there are several, prints them and their number; `are` says what is
/// wrong with the images.
fn of_all(mut faults: Vec<DaliError>, are: &str, store: &Store) -> Result<(), EngineError> {
    let count = faults.len();
    if count > 1 {
        let named: String = faults.iter().take(NAMED).map(|fault| format!("{fault}\n")).collect();
        super::super::print(&format!("{named}{count} of {} images are {are}\n", store.len()))?;
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.swap_remove(0).into()) }
}
