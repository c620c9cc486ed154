//! What the assembler said of the variants is in order: no compiler and no GPU is needed to tell.
//! (That they are those of the sources, the rules of the house hold.)

use device::Gpu;
use device::architecture::Architecture;
use probe::compiled::variants;
use probe::identity::CANDIDATES;
use probe::variants::VARIANTS;

#[test]
fn every_variant_is_compiled_and_spills_nothing() {
    let names = VARIANTS.iter().filter(|v| !v.is_baseline()).map(|v| v.kernel);
    let support = ["probe_fill", "probe_random_f16", "probe_compare"];
    for name in names.chain(CANDIDATES.map(|c| c.kernel)).chain(support) {
        let h100 = Gpu::h100().capability;
        let (source, kernel) = variants().manifest().kernel(name, h100).expect(name);
        let ptx = variants().ptx(source);
        assert!(ptx.contains(&format!(".entry {name}(")), "{name}");
        let hopper = source.architecture == Architecture::COMPUTE_90A;
        assert!(ptx.contains(if hopper { ".target sm_90a" } else { ".target sm_80" }), "{name}");
        assert_eq!(kernel.on.contains_key("sm_80"), !hopper, "{name}: assembled for A100 or not");
        for taken in kernel.on.values() {
            let (stored, loaded) = (taken.spill_store_bytes, taken.spill_load_bytes);
            assert_eq!([stored, loaded, taken.stack_bytes], [0, 0, 0], "{name}");
        }
    }
}

/// The blocks that a multiprocessor holds are those that the variants were made for.
#[test]
fn registers_leave_room_for_the_blocks() {
    for variant in VARIANTS.iter().filter(|variant| !variant.is_baseline()) {
        let h100 = Gpu::h100().capability;
        let (_, kernel) = variants().manifest().kernel(variant.kernel, h100).expect("compiled");
        let threads = if variant.hopper { 256 } else { 128 };
        // Registers come in units of 8 a thread; a multiprocessor has 64 Ki of them.
        let blocks = 65536 / (kernel.on["sm_90a"].registers.next_multiple_of(8) * threads);
        let wanted = if variant.name == "wgmma_n256" { 1 } else { 2 };
        assert!(blocks >= wanted, "{}: {blocks} blocks", variant.name);
    }
}
