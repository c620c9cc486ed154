//! The files of this folder as constants. `compile-kernels` writes all of it.

/// The manifest's text.
pub(super) const MANIFEST: &str = include_str!("manifest.json");

/// Name and text of each PTX file.
pub(super) const TEXTS: &[(&str, &str)] = &[
    ("compute_80/combined.ptx", include_str!("compute_80/combined.ptx")),
    ("compute_80/combined_ca.ptx", include_str!("compute_80/combined_ca.ptx")),
    ("compute_80/combined_deep.ptx", include_str!("compute_80/combined_deep.ptx")),
    ("compute_80/control.ptx", include_str!("compute_80/control.ptx")),
    ("compute_80/depth64.ptx", include_str!("compute_80/depth64.ptx")),
    ("compute_80/pointers.ptx", include_str!("compute_80/pointers.ptx")),
    ("compute_80/predicated.ptx", include_str!("compute_80/predicated.ptx")),
    ("compute_80/support.ptx", include_str!("compute_80/support.ptx")),
    ("compute_80/taps_ca.ptx", include_str!("compute_80/taps_ca.ptx")),
    ("compute_80/taps_ca_128b.ptx", include_str!("compute_80/taps_ca_128b.ptx")),
    ("compute_90a/wgmma_identity.ptx", include_str!("compute_90a/wgmma_identity.ptx")),
    ("compute_90a/wgmma_n128.ptx", include_str!("compute_90a/wgmma_n128.ptx")),
    ("compute_90a/wgmma_n256.ptx", include_str!("compute_90a/wgmma_n256.ptx")),
];
