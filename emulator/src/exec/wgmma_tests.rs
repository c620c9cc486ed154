//! Products of a warpgroup in code that NVRTC made: operands in every layout, checked by a product
//! with the identity matrix, and the loop of a convolution. `docs/driver.md` says whose code it is.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::{Fault, Launch, Options, Sums, run};
use crate::memory::Memory;
use crate::ptx::Module;
use crate::random::Random;

const OPTIONS: Options =
    Options { sums: Sums::Rounded, watch_shared: true, watch_global: true, count: false };
const IDENTITY: &[u8] = include_bytes!("../../tests/ptx/wgmma_identity.ptx.zst");
const LOOP: &[u8] = include_bytes!("../../tests/ptx/wgmma_n128.ptx.zst");
/// The swizzle of 128 bytes, rows of 64 values of k: the descriptor of both operands of the loop.
/// 16 / 16 at bit 16, 1,024 / 16 at bit 32, swizzle 1 at bit 62.
const WIDE: u64 = 0x4000_0040_0001_0000;

/// Device memory, and the parameters of a launch as they are laid out.
struct Bench {
    memory: Arc<Memory>,
    parameters: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        Self { memory: Arc::new(Memory::new(1 << 22)), parameters: vec![] }
    }

    fn put(&mut self, bytes: &[u8]) {
        let place = self.parameters.len().next_multiple_of(bytes.len().min(8));
        self.parameters.resize(place, 0);
        self.parameters.extend(bytes);
    }

    fn int(&mut self, value: usize) {
        self.put(&(value as u32).to_le_bytes());
    }

    /// A tensor of these bytes, or none.
    fn tensor(&mut self, bytes: Option<&[u8]>) -> u64 {
        let address = bytes.map_or(0, |bytes| {
            let address = self.memory.allocate(bytes.len()).unwrap();
            // SAFETY: the source is the whole of a slice.
            assert!(unsafe { self.memory.write(address, bytes.as_ptr(), bytes.len()) });
            address
        });
        self.put(&address.to_le_bytes());
        address
    }

    fn run(
        self,
        ptx: &[u8],
        name: &str,
        [blocks, threads, shared]: [usize; 3],
        seed: u64,
        (made, bytes): (u64, usize),
    ) -> Result<Vec<u8>, Fault> {
        let text = String::from_utf8(zstd::decode_all(ptx).unwrap()).unwrap();
        let module = Module::load(&text, &self.memory).unwrap();
        let launch = Launch {
            kernel: module.kernel(name).unwrap(),
            grid: [blocks as u32, 1, 1],
            block: [threads as u32, 1, 1],
            dynamic_shared: shared as u32,
            parameters: self.parameters,
            declared: None,
        };
        run(&launch, &self.memory, seed, OPTIONS)?;
        let mut results = vec![0; bytes];
        // SAFETY: the target is the whole of the vector.
        assert!(unsafe { self.memory.read(made, results.as_mut_ptr(), bytes) });
        Ok(results)
    }
}

/// A whole number of at most 2,048 as f16.
fn half(value: i32) -> [u8; 2] {
    let (sign, size) = (u16::from(value < 0) << 15, value.unsigned_abs());
    let exponent = size.checked_ilog2().unwrap_or(0);
    let bits = (exponent as u16 + 15) << 10 | (size << (11 - exponent) >> 1) as u16 & 0x3ff;
    (if size == 0 { 0 } else { sign | bits }).to_le_bytes()
}

/// One operand in shared memory, and its description by a descriptor.
#[derive(Debug, Clone, Copy)]
struct Operand {
    /// Bytes of a line of the swizzle; 16 is none.
    width: usize,
    /// Rows of A, or columns of B, run along a line, as both do in the gradient of the weights;
    /// else values of k.
    turned: bool,
    /// The offsets exchanged in the descriptor.
    exchanged: bool,
}

impl Operand {
    /// Byte of element `i` of `extent`, at `at` of `k`.
    fn place(&self, i: usize, at: usize, extent: usize, k: usize) -> usize {
        let offset = match (self.turned, self.width) {
            // Matrices of 8 x 16 bytes: along the extent side by side, then along k.
            (false, 16) => return (at / 8 * (extent / 8) + i / 8) * 128 + i % 8 * 16 + at % 8 * 2,
            (false, width) => i * width + at * 2,
            // Patterns of 8 values of k with 64 rows each: along k side by side.
            (true, _) => (i / 64 * (k / 8) + at / 8) * 1024 + at % 8 * 128 + i % 64 * 2,
        };
        // Address bits from 4 on are crossed with those from 7 on.
        offset ^ (offset >> 7 & (self.width / 16 - 1)) << 4
    }

    /// The descriptor's bits but for the address, and the bytes from 16 values of k to the next. As
    /// CUTLASS reads the ISA: the leading offset leads along k to the next matrix where nothing is
    /// swizzled, and along the extent where that runs along lines; the stride leads the other way.
    fn described(&self, extent: usize, k: usize) -> (u64, usize) {
        let (leading, stride, advance) = match (self.turned, self.width) {
            (false, 16) => (extent / 8 * 128, 128, extent / 8 * 256),
            (false, width) => (16, 8 * width, 32),
            (true, _) => (k / 8 * 1024, 1024, 2048),
        };
        let (leading, stride) = if self.exchanged { (stride, leading) } else { (leading, stride) };
        let swizzle = [(16, 0), (32, 3), (64, 2), (128, 1)].iter().find(|of| of.0 == self.width);
        let bits = (leading as u64 >> 4) << 16 | (stride as u64 >> 4) << 32;
        (bits | swizzle.unwrap().1 << 62, advance)
    }

    fn image(&self, extent: usize, k: usize, value: impl Fn(usize, usize) -> u16) -> Vec<u8> {
        let mut image = vec![0; extent * k * 2];
        for i in 0..extent {
            for at in 0..k {
                let place = self.place(i, at, extent, k);
                image[place..place + 2].copy_from_slice(&value(i, at).to_le_bytes());
            }
        }
        image
    }
}

/// d = a * b with a the identity of 64 rows, and every value of b [128, k] another: whether d is b
/// transposed.
fn is_transposed(name: &str, a: Operand, b: Operand, k: usize) -> Result<bool, Fault> {
    let one = |m, k| if m == k { 0x3c00 } else { 0 };
    // From the smallest half of full precision on.
    let numbered = |n: usize, k: usize| 0x400 + (n * 64 + k) as u16;
    let mut bench = Bench::new();
    for image in [a.image(64, k, one), b.image(128, k, numbered)] {
        bench.tensor(Some(&image));
        bench.int(image.len() / 16);
    }
    let ((a_bits, a_advance), (b_bits, b_advance)) = (a.described(64, k), b.described(128, k));
    [a_bits, b_bits].iter().for_each(|bits| bench.put(&bits.to_le_bytes()));
    [a_advance, b_advance, k / 16].into_iter().for_each(|value| bench.int(value));
    let bytes = 4 * 64 * 128;
    let d = bench.tensor(Some(&vec![0xff; bytes]));
    let made = bench.run(IDENTITY, name, [1, 128, 128 << 10], 1, (d, bytes))?;
    let holds = |(i, word): (usize, &[u8; 4])| {
        let (m, n) = (i / 128, i % 128);
        let bits = if m < k { u32::from(numbered(n, m)) } else { 0 };
        // The exponent of a float is 112 more, its fraction 13 bits longer.
        let wanted = if bits == 0 { 0 } else { (bits + (112 << 10)) << 13 };
        u32::from_le_bytes(*word) == wanted
    };
    Ok(made.as_chunks().0.iter().enumerate().all(holds))
}

/// Exchanged offsets tell two readings of the ISA apart.
#[test]
fn descriptors_mean_what_they_are_taken_to_mean() {
    let rows = |width, exchanged| Operand { width, turned: false, exchanged };
    let columns = |exchanged| Operand { width: 128, turned: true, exchanged };
    let wide = rows(128, false);
    assert_eq!(wide.described(64, 64), (WIDE, 32));
    for (name, a, b, k, holds) in [
        ("probe_wgmma_identity", wide, wide, 64, true),
        ("probe_wgmma_identity", rows(64, false), rows(64, false), 32, true),
        ("probe_wgmma_identity", rows(32, false), rows(32, false), 16, true),
        ("probe_wgmma_identity", rows(16, false), rows(16, false), 64, true),
        ("probe_wgmma_identity", rows(16, true), rows(16, true), 64, false),
        ("probe_wgmma_identity_b", wide, columns(false), 64, true),
        ("probe_wgmma_identity_b", wide, columns(true), 64, false),
        ("probe_wgmma_identity_ab", columns(false), columns(false), 64, true),
    ] {
        let found = is_transposed(name, a, b, k);
        assert_eq!(found.clone().unwrap_or(false), holds, "{name}, {a:?}, {b:?}: {found:?}");
    }
}

/// By hand, from the ISA's figures: (row 9, k 3) without a swizzle is matrix 1 of the first column
/// of matrices, row 1; k 11 is in the next column, 8 matrices on. In the swizzle of 128 bytes row 9
/// is line 9, chunk 0 ^ 1. Where rows run along lines, (row 70, k 9) of k 64 is in pattern 8 + 1,
/// line 1, byte 12 of chunk 0 ^ 1.
#[test]
fn places_are_those_of_the_isa() {
    let rows = |width| Operand { width, turned: false, exchanged: false };
    assert_eq!(rows(16).place(9, 3, 64, 64), 128 + 16 + 6);
    assert_eq!(rows(16).place(9, 11, 64, 64), 8 * 128 + 128 + 16 + 6);
    assert_eq!(rows(128).place(9, 3, 64, 64), 9 * 128 + 16 + 6);
    let columns = Operand { turned: true, ..rows(128) };
    assert_eq!(columns.place(70, 9, 128, 64), 9 * 1024 + 128 + 16 + 12);
}

/// A convolution `x [N,H,W,C] * w [K,R,R,C] -> y [N,P,Q,K]` of whole numbers.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// N, H and W.
    x: [usize; 3],
    /// C.
    channels: usize,
    /// K.
    filters: usize,
    /// R.
    kernel: usize,
    stride: usize,
    pad: usize,
    /// A factor of each filter, a summand of each output element, and negative results become 0.
    extras: bool,
}

/// Runs the loop: tiles of 128 x 128, three stages of 64 values of k. Sums are exact in f16.
fn check(shape: Shape, seed: u64) {
    let Shape { x: [n, h, w], channels, filters, kernel, stride, pad, extras } = shape;
    let [p, q] = [h, w].map(|side| (side + 2 * pad - kernel) / stride + 1);
    let (rows, taps) = (n * p * q, kernel * kernel);
    let mut random = Random::new(seed);
    let mut draw = |len: usize, size: usize| -> Vec<i32> {
        (0..len).map(|_| random.below(2 * size + 1) as i32 - size as i32).collect()
    };
    let input = draw(n * h * w * channels, 1);
    let weight = draw(filters * taps * channels, 1);
    let [scale, bias] = [2, 9].map(|size| draw(filters, size));
    let residual = draw(rows * filters, 9);
    let halves = |values: &[i32]| values.iter().flat_map(|v| half(*v)).collect::<Vec<_>>();
    let floats =
        |values: &[i32]| values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect::<Vec<_>>();

    let mut bench = Bench::new();
    bench.tensor(Some(&halves(&input)));
    bench.tensor(Some(&halves(&weight)));
    bench.tensor(extras.then_some(&floats(&scale)));
    bench.tensor(Some(&floats(&bias)));
    bench.tensor(extras.then_some(&halves(&residual)));
    bench.tensor(None);
    let bytes = 2 * rows * filters;
    let y = bench.tensor(Some(&vec![0xff; bytes]));
    let conv = [n, h, w, channels, filters, kernel, kernel, stride, pad, p, q];
    conv.into_iter().for_each(|value| bench.int(value));
    bench.int(usize::from(extras));
    bench.put(&WIDE.to_le_bytes());
    let tiles = rows.div_ceil(128) * filters.div_ceil(128);
    let shared = 3 * 256 * 64 * 2 + 1024;
    let made = bench.run(LOOP, "probe_wgmma_n128", [tiles, 256, shared], seed, (y, bytes)).unwrap();

    for row in 0..rows {
        let (image, at) = (row / (p * q), row % (p * q));
        let window: Vec<_> = (0..taps)
            .filter_map(|tap| {
                let top = (at / q * stride + tap / kernel).checked_sub(pad).filter(|y| *y < h)?;
                let left = (at % q * stride + tap % kernel).checked_sub(pad).filter(|x| *x < w)?;
                Some((tap, &input[((image * h + top) * w + left) * channels..][..channels]))
            })
            .collect();
        for filter in 0..filters {
            let of = |tap| &weight[(filter * taps + tap) * channels..][..channels];
            let products = window.iter().flat_map(|(tap, x)| x.iter().zip(of(*tap)));
            let sum: i32 = products.map(|(a, b)| a * b).sum();
            let i = row * filters + filter;
            let wanted = match extras {
                true => (sum * scale[filter] + bias[filter] + residual[i]).max(0),
                false => sum + bias[filter],
            };
            assert_eq!(made[2 * i..][..2], half(wanted), "{shape:?}: row {row}, filter {filter}");
        }
    }
}

/// Every edge of a tile, filters that fill none, each part of the epilogue, and a single k-block.
#[test]
fn a_convolution_on_wgmma_is_exact() {
    let plain = Shape {
        x: [2, 9, 11],
        channels: 128,
        filters: 136,
        kernel: 3,
        stride: 1,
        pad: 1,
        extras: false,
    };
    check(plain, 1);
    let point = Shape { x: [1, 13, 21], channels: 64, kernel: 1, pad: 0, ..plain };
    check(Shape { filters: 200, extras: true, ..point }, 2);
    check(Shape { x: [2, 15, 13], channels: 64, filters: 64, stride: 2, ..plain }, 3);
    check(Shape { x: [1, 5, 7], filters: 8, ..point }, 4);
}
