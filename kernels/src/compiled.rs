//! The compiled kernels embedded in this library, and opening a GPU with them.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use device::cuda::CudaDevice;
use device::manifest::Compiled;
use device::tensor::{kernel_name, served_by};
use device::{DeviceError, Launch, Precision};
use include_dir::{Dir, File, include_dir};

/// The manifest, and an archive for each source and element type.
static FOLDER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../ptx");

/// The kernels of all ops.
pub fn kernels() -> &'static Compiled {
    static KERNELS: LazyLock<Compiled> = LazyLock::new(|| {
        // A test compares the folder with its manifest, so a build that passes the test does not
        // panic.
        let name = |file: &'static File<'_>| file.path().to_str().unwrap_or_default();
        let files = FOLDER.files().map(|file| (name(file), file.contents()));
        Compiled::new(files).unwrap_or_else(|e| panic!("ptx/{e}"))
    });
    &KERNELS
}

/// The launch with the kernel's variant that is compiled for this precision. If there is none, the
/// launch itself, as the kernel does not depend on the precision.
///
/// Panics if the kernel exists only for fp16: its op must not be in a program of a different
/// precision.
pub(crate) fn in_precision(precision: Precision, launch: Launch) -> Launch {
    static NAMES: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
        let sources = kernels().manifest().sources.iter();
        sources.flat_map(|source| &source.kernels).map(|kernel| kernel.name.as_str()).collect()
    });
    let names = served_by(precision).iter().map(|by| kernel_name(*by, launch.kernel));
    match names.filter_map(|name| NAMES.get(name.as_str()).copied()).next() {
        Some(kernel) => Launch { kernel, ..launch },
        None => {
            let alone = precision != Precision::Fp16 && NAMES.contains(launch.kernel);
            let alone = alone && launch.kernel.contains("_f16");
            assert!(!alone, "{} has no kernel of {precision:?}", launch.kernel);
            launch
        }
    }
}

/// Opens the GPU with this number and the kernels of all ops.
///
/// # Errors
/// As for [`CudaDevice::open`].
pub fn open(ordinal: usize, notice: fn(&str)) -> Result<CudaDevice, DeviceError> {
    CudaDevice::open(ordinal, &[kernels()], notice)
}

#[cfg(test)]
mod tests {
    use device::architecture::Capability;
    use device::manifest::Source;

    use super::*;

    #[test]
    fn library_contains_every_manifest_kernel() {
        let sources = &kernels().manifest().sources;
        assert!(!sources.is_empty());
        for source in sources {
            let text = kernels().ptx(source);
            assert!(text.contains(".target sm_"), "{}", source.ptx);
            for kernel in &source.kernels {
                assert!(text.contains(&format!(".entry {}(", kernel.name)), "{}", kernel.name);
            }
        }
    }

    /// Each GPU with shipped machine code loads all of its kernels without compiling.
    #[test]
    fn machine_code_matches_ptx() {
        for (major, minor) in [(8, 0), (8, 6), (8, 9), (9, 0)] {
            let gpu = Capability { major, minor };
            let sources = kernels().manifest().sources.iter();
            for source in sources.filter(|source| source.architecture.runs_on(gpu)) {
                let code = kernels().machine_code(source, gpu);
                let code = code.unwrap_or_else(|| panic!("{} has none for {gpu}", source.ptx));
                assert!(code.starts_with(b"\x7fELF"), "{}", source.ptx);
                let stale = Source { ptx_sha256: "0".into(), ..source.clone() };
                assert_eq!(kernels().machine_code(&stale, gpu), None, "of other PTX");
            }
        }
        let later = Capability { major: 10, minor: 0 };
        assert_eq!(kernels().machine_code(&kernels().manifest().sources[0], later), None);
    }
}
