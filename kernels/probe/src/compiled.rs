//! The compiled variants in this library.

use std::sync::LazyLock;

use device::manifest::Compiled;

#[rustfmt::skip]
#[path = "../ptx/mod.rs"]
mod ptx;

/// The variants, and the kernels that fill and compare their tensors.
pub fn variants() -> &'static Compiled {
    static VARIANTS: LazyLock<Compiled> = LazyLock::new(|| {
        // A test compares the folder with its manifest, so no build that passed it panics.
        Compiled::new(ptx::MANIFEST, ptx::TEXTS).unwrap_or_else(|e| panic!("kernels/probe/ptx/{e}"))
    });
    &VARIANTS
}
