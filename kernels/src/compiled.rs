//! The compiled kernels in this library, and the GPU that runs them.

use std::sync::LazyLock;

use device::DeviceError;
use device::cuda::CudaDevice;
use device::manifest::Compiled;

#[rustfmt::skip]
#[path = "../../ptx/mod.rs"]
mod ptx;

/// The kernels of all ops.
pub fn kernels() -> &'static Compiled {
    static KERNELS: LazyLock<Compiled> = LazyLock::new(|| {
        // A test compares the folder with its manifest, so no build that passed it panics.
        Compiled::new(ptx::MANIFEST, ptx::TEXTS).unwrap_or_else(|e| panic!("ptx/{e}"))
    });
    &KERNELS
}

/// Opens the GPU of this number with the kernels of all ops.
///
/// # Errors
/// As for [`CudaDevice::open`].
pub fn open(ordinal: usize) -> Result<CudaDevice, DeviceError> {
    CudaDevice::open(ordinal, &[kernels()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_holds_every_kernel_of_the_manifest() {
        let sources = &kernels().manifest().sources;
        assert!(!sources.is_empty());
        for source in sources {
            let text = kernels().ptx(source);
            assert!(text.contains(".target sm_"), "{}", source.ptx);
            for kernel in &source.kernels {
                assert!(text.contains(&format!(".entry {}(", kernel.name)), "{}", kernel.name);
            }
        }
        for (file, _) in ptx::TEXTS {
            assert!(sources.iter().any(|source| source.ptx == *file), "{file}");
        }
    }
}
