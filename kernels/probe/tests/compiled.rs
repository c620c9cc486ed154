//! The compiled variants are those of the sources, and what the assembler said of them is in order:
//! no compiler and no GPU is needed to tell.

use std::fs;
use std::path::PathBuf;

use compile::sources::{sha256, source_sha256};
use probe::compiled::{CUDA_FOLDER, for_hopper_alone, manifest, source};
use probe::identity::CANDIDATES;
use probe::variants::VARIANTS;

const MEND: &str = "run `cargo run --release -p probe --bin compile-probe -- --fetch`";

fn read(path: &str) -> Option<String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).ok()
}

#[test]
fn compiled_variants_are_those_of_the_sources() {
    let manifest = manifest().expect("a manifest");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cuda");
    let names = fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("a file"));
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut present: Vec<String> = names
        .filter(|name| name.ends_with(".cu"))
        .map(|name| format!("{CUDA_FOLDER}/{name}"))
        .collect();
    present.sort();
    let compiled: Vec<&str> = manifest.sources.iter().map(|s| s.path.as_str()).collect();
    assert_eq!(compiled, present, "{MEND}");
    for source in &manifest.sources {
        let hash = source_sha256(&source.path, &read);
        assert_eq!(hash.as_ref(), Some(&source.sha256), "{} changed; {MEND}", source.path);
        let ptx = read(&format!("kernels/probe/ptx/{}", source.ptx)).expect("its PTX");
        assert_eq!(sha256(ptx.as_bytes()), source.ptx_sha256, "{}; {MEND}", source.ptx);
    }
}

#[test]
fn every_variant_is_compiled_and_spills_nothing() {
    let kernels = VARIANTS.iter().filter(|v| !v.is_baseline()).map(|v| v.kernel);
    let support = ["probe_fill", "probe_random_f16", "probe_compare"];
    for name in kernels.chain(CANDIDATES.map(|c| c.kernel)).chain(support) {
        let (source, ptx) = source(name).expect("a manifest").expect(name);
        assert!(ptx.contains(&format!(".entry {name}(")), "{name}");
        let hopper = for_hopper_alone(&source.path);
        assert!(ptx.contains(if hopper { ".target sm_90a" } else { ".target sm_80" }), "{name}");
        let kernel = source.kernels.iter().find(|kernel| kernel.name == name).expect(name);
        assert_eq!(kernel.sm_80.registers == 0, hopper, "{name}: assembled for A100 or not");
        for taken in [kernel.sm_80, kernel.sm_90a] {
            let (stored, loaded) = (taken.spill_store_bytes, taken.spill_load_bytes);
            assert_eq!([stored, loaded, taken.stack_bytes], [0, 0, 0], "{name}");
        }
    }
}

/// The blocks that a multiprocessor holds are those that the variants were made for.
#[test]
fn registers_leave_room_for_the_blocks() {
    for variant in VARIANTS.iter().filter(|variant| !variant.is_baseline()) {
        let (_, kernel) = manifest().expect("a manifest").kernel(variant.kernel).expect("compiled");
        let threads = if variant.hopper { 256 } else { 128 };
        // Registers come in units of 8 a thread; a multiprocessor has 64 Ki of them.
        let blocks = 65536 / (kernel.sm_90a.registers.next_multiple_of(8) * threads);
        let wanted = if variant.name == "wgmma_n256" { 1 } else { 2 };
        assert!(blocks >= wanted, "{}: {blocks} blocks", variant.name);
    }
}
