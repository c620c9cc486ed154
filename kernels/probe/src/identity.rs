//! Which descriptors mean what they are taken to mean: products with the identity matrix.
//!
//! A is the identity, and every value of B a different number, so D is B transposed, and where it
//! is not, each of its values says which element of B the tensor core read instead. Each candidate
//! is a layout of both operands in memory with the offsets that describe it; those with offsets
//! exchanged are there to tell the two apart. The host makes the memory's image and the
//! descriptor's bits; the kernel only adds the address.

use device::{Access, Arg, Device, DeviceError, Launch, Touch};

use crate::descriptor::{Descriptor, Layout};
use crate::memory::Memory;

/// Rows of A, and of D.
const M: usize = 64;
/// Columns of D.
const N: usize = 128;
/// Bits of the first value of B: the smallest half of full precision.
const FIRST: u16 = 0x0400;

/// Which index of an operand runs along a line of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Major {
    /// Values of k: as activations and filters lie in the forward pass.
    K,
    /// Rows of A, or columns of B: as both lie in the gradient of the weights.
    Extent,
}

/// One operand in memory, and its description by a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// The swizzle.
    pub layout: Layout,
    /// What runs along a line.
    pub major: Major,
    /// The offsets exchanged in the descriptor.
    pub exchanged: bool,
}

/// A pair of operands to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// How the command line names it.
    pub name: &'static str,
    /// The kernel with its transpositions.
    pub kernel: &'static str,
    /// Values of k in the product: one line of the swizzle.
    pub k: usize,
    /// Left operand.
    pub a: Operand,
    /// Right operand.
    pub b: Operand,
    /// Whether D is expected to be B transposed. The others should not be, and tell which of two
    /// readings of the ISA is right.
    pub holds: bool,
}

const fn rows(layout: Layout, exchanged: bool) -> Operand {
    Operand { layout, major: Major::K, exchanged }
}
const fn columns(exchanged: bool) -> Operand {
    Operand { layout: Layout::Swizzle128, major: Major::Extent, exchanged }
}
const WIDE: Operand = rows(Layout::Swizzle128, false);
const PLAIN: &str = "probe_wgmma_identity";
const OF_ROWS: Candidate =
    Candidate { name: "k_swizzle128", kernel: PLAIN, k: 64, a: WIDE, b: WIDE, holds: true };

/// All candidates, that of the wgmma variants first.
pub const CANDIDATES: [Candidate; 8] = [
    OF_ROWS,
    Candidate {
        name: "k_swizzle64",
        k: 32,
        a: rows(Layout::Swizzle64, false),
        b: rows(Layout::Swizzle64, false),
        ..OF_ROWS
    },
    Candidate {
        name: "k_swizzle32",
        k: 16,
        a: rows(Layout::Swizzle32, false),
        b: rows(Layout::Swizzle32, false),
        ..OF_ROWS
    },
    Candidate {
        name: "k_plain",
        a: rows(Layout::None, false),
        b: rows(Layout::None, false),
        ..OF_ROWS
    },
    Candidate {
        name: "k_plain_exchanged",
        a: rows(Layout::None, true),
        b: rows(Layout::None, true),
        holds: false,
        ..OF_ROWS
    },
    Candidate {
        name: "columns_of_b",
        kernel: "probe_wgmma_identity_b",
        b: columns(false),
        ..OF_ROWS
    },
    Candidate {
        name: "columns_of_b_exchanged",
        kernel: "probe_wgmma_identity_b",
        b: columns(true),
        holds: false,
        ..OF_ROWS
    },
    Candidate {
        name: "columns_of_both",
        kernel: "probe_wgmma_identity_ab",
        a: columns(false),
        b: columns(false),
        ..OF_ROWS
    },
];

impl Candidate {
    /// The candidate of this name.
    pub fn named(name: &str) -> Option<Self> {
        CANDIDATES.iter().find(|candidate| candidate.name == name).copied()
    }
}

impl Operand {
    /// Byte of element `i` of `extent`, at `at` of `k`.
    fn place(&self, i: usize, at: usize, extent: usize, k: usize) -> usize {
        match (self.major, self.layout) {
            // Matrices of 8 x 16 bytes: along the extent side by side, then along k.
            (Major::K, Layout::None) => {
                (at / 8 * (extent / 8) + i / 8) * 128 + i % 8 * 16 + at % 8 * 2
            }
            (Major::K, layout) => layout.place(i * layout.line_bytes() + at * 2),
            // Patterns of 8 values of k with 64 rows each: along k side by side.
            (Major::Extent, layout) => {
                let pattern = i / 64 * (k / 8) + at / 8;
                layout.place(pattern * 1024 + at % 8 * 128 + i % 64 * 2)
            }
        }
    }

    /// What the descriptor says, by the reading that CUTLASS shares: the leading offset leads along
    /// k to the next matrix where nothing is swizzled, and along the extent where that runs along
    /// lines; the stride offset leads the other way.
    fn descriptor(&self, extent: usize, k: usize) -> Descriptor {
        let (leading_bytes, stride_bytes) = match (self.major, self.layout) {
            (Major::K, Layout::None) => (extent / 8 * 128, 128),
            (Major::K, layout) => (16, 8 * layout.line_bytes()),
            (Major::Extent, _) => (k / 8 * 1024, 1024),
        };
        let (leading_bytes, stride_bytes) = match self.exchanged {
            true => (stride_bytes, leading_bytes),
            false => (leading_bytes, stride_bytes),
        };
        Descriptor { layout: self.layout, leading_bytes, stride_bytes }
    }

    /// How far 16 values of k lie from the 16 before them.
    fn advance(&self, extent: usize) -> usize {
        match (self.major, self.layout) {
            (Major::K, Layout::None) => 2 * (extent / 8 * 128),
            (Major::K, _) => 32,
            (Major::Extent, _) => 2 * 1024,
        }
    }

    /// Memory that holds the operand, whose elements are `value(i, k)` in half's bits.
    fn image(&self, extent: usize, k: usize, value: impl Fn(usize, usize) -> u16) -> Vec<u8> {
        let mut image = vec![0; extent * k * 2];
        for i in 0..extent {
            for at in 0..k {
                let place = self.place(i, at, extent, k);
                image[place..place + 2].copy_from_slice(&value(i, at).to_ne_bytes());
            }
        }
        image
    }
}

/// B's element of column `n` at `k`: all different, none special.
fn numbered(n: usize, k: usize) -> u16 {
    FIRST + (n * 64 + k) as u16
}

/// Half's bits of a value that is one of B's, or 0.
fn half_bits(value: f32) -> Option<u16> {
    let bits = value.to_bits();
    if bits == 0 {
        return Some(0);
    }
    // Exponents of half from 1 on; 13 bits of the fraction must be 0.
    let exponent = (bits >> 23) as i32 - 127 + 15;
    let exact = bits >> 31 == 0 && bits & 0x1fff == 0 && (1..31).contains(&exponent);
    exact.then_some((exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16)
}

/// One sentence if D is not the product of the identity and B.
fn fault(d: &[f32], k: usize) -> Option<String> {
    let wanted = |m: usize, n: usize| if m < k { numbered(n, m) } else { 0 };
    let wrong: Vec<_> =
        (0..M * N).filter(|i| half_bits(d[*i]) != Some(wanted(i / N, i % N))).take(M * N).collect();
    let first = *wrong.first()?;
    let read = match half_bits(d[first]) {
        Some(0) => "nothing".to_string(),
        Some(bits) if bits >= FIRST && usize::from(bits - FIRST) < N * 64 => {
            let place = usize::from(bits - FIRST);
            format!("column {}, k {}", place / 64, place % 64)
        }
        _ => format!("{:e}", d[first]),
    };
    let (m, n, count) = (first / N, first % N, wrong.len());
    Some(format!("{count} of {} values are wrong; for column {n}, k {m} it read {read}", M * N))
}

/// Runs a candidate: none if D is B transposed, else one sentence on what was read.
///
/// # Errors
/// The device's.
pub fn run(device: &dyn Device, candidate: &Candidate) -> Result<Option<String>, DeviceError> {
    let mut memory = Memory::new(device)?;
    let launch = launch(candidate, &mut memory)?;
    let Some(Arg::Buffer(d)) = launch.args.last() else { return Ok(None) };
    device.launch(memory.stream, &launch)?;
    let bytes = memory.download(d.ptr, d.bytes)?;
    let d: Vec<f32> = crate::memory::words(&bytes).into_iter().map(f32::from_bits).collect();
    Ok(fault(&d, candidate.k))
}

fn launch(candidate: &Candidate, memory: &mut Memory<'_>) -> Result<Launch, DeviceError> {
    let Candidate { a, b, k, .. } = candidate;
    let one = |m: usize, k: usize| if m == k { 0x3c00 } else { 0 };
    let images = [a.image(M, *k, one), b.image(N, *k, numbered)];
    // More than an operand that is described wrongly can reach: it reads rubbish, and no fault.
    let shared = 128 << 10;
    let mut launch = Launch::new(candidate.kernel, [1, 1, 1]).block(128).shared(shared);
    for image in &images {
        let touch = Touch { ptr: memory.upload(image)?, bytes: image.len(), access: Access::Read };
        launch = launch.arg(Arg::Buffer(touch)).int(image.len() / 16);
    }
    let bytes = 4 * M * N;
    let poison = vec![0xFF; bytes];
    let d = Touch { ptr: memory.upload(&poison)?, bytes, access: Access::Write };
    Ok(launch
        .arg(a.descriptor(M, *k).bits())
        .arg(b.descriptor(N, *k).bits())
        .int(a.advance(M))
        .int(b.advance(N))
        .int(k / 16)
        .arg(Arg::Buffer(d)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::hopper_operand;

    #[test]
    fn the_first_candidate_is_what_the_variants_use() {
        let [a, b] = [(CANDIDATES[0].a, M), (CANDIDATES[0].b, N)];
        assert_eq!(a.0.descriptor(a.1, 64), hopper_operand(Layout::Swizzle128));
        assert_eq!(b.0.descriptor(b.1, 64), hopper_operand(Layout::Swizzle128));
        assert_eq!(a.0.advance(a.1), 32);
    }

    /// Every element has a place of its own, within the image, in whatever layout.
    #[test]
    fn images_hold_every_element_once() {
        for candidate in CANDIDATES {
            for (operand, extent) in [(candidate.a, M), (candidate.b, N)] {
                let mut image = operand.image(extent, candidate.k, numbered);
                let mut values: Vec<u16> =
                    image.chunks_exact_mut(2).map(|b| u16::from_ne_bytes([b[0], b[1]])).collect();
                values.sort_unstable();
                let mut wanted: Vec<u16> = (0..extent)
                    .flat_map(|n| (0..candidate.k).map(move |k| numbered(n, k)))
                    .collect();
                wanted.sort_unstable();
                assert_eq!(values, wanted, "{}", candidate.name);
            }
        }
    }

    /// By hand, from the ISA's figures: (row 9, k 3) without swizzle is matrix 1 of the first
    /// column of matrices, row 1: 128 + 16 + 6; k 11 is in the next column, 8 matrices (64 rows)
    /// on. In the swizzle of 128 bytes row 9 is line 9, chunk 0 ^ 1. Where rows run along lines,
    /// (row 70, k 9) of k 64 is in pattern 8 + 1, line 1, byte 12 of chunk 0 ^ 1.
    #[test]
    fn places_are_those_of_the_isa() {
        let plain = rows(Layout::None, false);
        assert_eq!(plain.place(9, 3, 64, 64), 128 + 16 + 6);
        assert_eq!(plain.place(9, 11, 64, 64), 8 * 128 + 128 + 16 + 6);
        assert_eq!(WIDE.place(9, 3, 64, 64), 9 * 128 + 16 + 6);
        assert_eq!(columns(false).place(70, 9, 128, 64), 9 * 1024 + 128 + 16 + 12);
    }

    #[test]
    fn what_was_read_instead_is_named() {
        let half = |bits: u16| {
            let (exponent, fraction) = (u32::from(bits >> 10), u32::from(bits & 0x3ff));
            f32::from_bits((exponent + 112) << 23 | fraction << 13)
        };
        let mut d: Vec<f32> = (0..M * N).map(|i| half(numbered(i % N, i / N))).collect();
        assert_eq!(fault(&d, 64), None);
        d[N + 5] = half(numbered(6, 8));
        let said = fault(&d, 64).unwrap();
        assert_eq!(said, "1 of 8192 values are wrong; for column 5, k 1 it read column 6, k 8");
        d[N + 5] = f32::NAN;
        assert!(fault(&d, 64).unwrap().ends_with("it read NaN"));
        assert!(fault(&d, 32).unwrap().starts_with("4097 of 8192"));
    }
}
