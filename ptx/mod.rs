//! The files of this folder as constants. `compile-kernels` writes all of it.

/// The manifest's text.
pub(super) const MANIFEST: &str = include_str!("manifest.json");

/// The machine code for each GPU: an archive of `device::archive`.
pub(super) const MACHINE: &[(&str, &[u8])] = &[
    ("sm_80", include_bytes!("sm_80.zst")),
    ("sm_90a", include_bytes!("sm_90a.zst")),
];
