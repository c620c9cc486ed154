//! The compiled variants that this library holds, and their manifest.

use std::sync::OnceLock;

use kernels::device::manifest::{Manifest, ManifestError, Source};

/// Where the variants' sources lie, from the checkout's root.
pub const CUDA_FOLDER: &str = "kernels/probe/cuda";

/// The manifest's text, and the name and text of each PTX file; listed by the build script.
const EMBEDDED: (&str, &[(&str, &str)]) = include!(concat!(env!("OUT_DIR"), "/ptx.rs"));

/// The manifest of the compiled variants. A source that is for Hopper alone has zeros for sm_80.
///
/// # Errors
/// A manifest that was written by hand, or that an older tool wrote.
pub fn manifest() -> Result<&'static Manifest, ManifestError> {
    static MANIFEST: OnceLock<Result<Manifest, ManifestError>> = OnceLock::new();
    MANIFEST.get_or_init(|| Manifest::parse(EMBEDDED.0)).as_ref().map_err(Clone::clone)
}

/// The source of a kernel, with its PTX.
///
/// # Errors
/// As [`manifest`].
pub fn source(kernel: &str) -> Result<Option<(&'static Source, &'static str)>, ManifestError> {
    let Some((source, _)) = manifest()?.kernel(kernel) else { return Ok(None) };
    let text = EMBEDDED.1.iter().find(|(file, _)| *file == source.ptx).map(|(_, text)| *text);
    Ok(text.map(|text| (source, text)))
}

/// Whether a source holds instructions of sm_90a: those of H100 and H200, and of no other GPU.
pub fn for_hopper_alone(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("wgmma"))
}
