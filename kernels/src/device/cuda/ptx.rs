//! The compiled kernels that this library holds, and their manifest.

use std::sync::OnceLock;

use crate::device::DeviceError;
use crate::device::manifest::Manifest;

/// The manifest's text, and the name and text of each PTX file; listed by the build script.
const EMBEDDED: (&str, &[(&str, &str)]) = include!(concat!(env!("OUT_DIR"), "/ptx.rs"));

/// The manifest of the compiled kernels.
///
/// # Errors
/// A manifest that was written by hand, or that an older tool wrote.
pub fn manifest() -> Result<&'static Manifest, DeviceError> {
    static MANIFEST: OnceLock<Result<Manifest, DeviceError>> = OnceLock::new();
    let parsed = MANIFEST.get_or_init(|| {
        Manifest::parse(EMBEDDED.0).map_err(|e| DeviceError::Driver {
            call: "reading the compiled kernels".into(),
            reason: e.to_string(),
        })
    });
    parsed.as_ref().map_err(Clone::clone)
}

/// Text of a PTX file, by the name that the manifest gives it.
pub fn text(name: &str) -> Option<&'static str> {
    EMBEDDED.1.iter().find(|(file, _)| *file == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_holds_every_kernel_of_the_manifest() {
        let sources = &manifest().unwrap().sources;
        assert!(!sources.is_empty());
        for source in sources {
            let text = text(&source.ptx).expect(&source.ptx);
            for kernel in &source.kernels {
                assert!(text.contains(&format!(".entry {}(", kernel.name)), "{}", kernel.name);
            }
        }
        for (file, _) in EMBEDDED.1 {
            assert!(sources.iter().any(|source| source.ptx == *file), "{file}");
        }
    }
}
