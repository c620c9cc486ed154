//! FLOPs and bytes of a step's GEMMs: compares the MMAs and bytes that the emulated driver counts
//! with the ops' costs and the launches.
//!
//! A launch computes complete tiles of 16x8x16 MMAs: its rows and columns are padded to tiles, and
//! its reduction to k-blocks of 32. The launch determines both ([`GemmWork`]), and the counts must
//! match exactly. So the FLOPs of `Op::cost` are a lower bound, and the difference is only padding.

use std::sync::Arc;

use device::{Arg, Launch};
use engine::config::Config;
use test_gpu::{Counted, Operation, TestGpu};
use tests::step::counted_gemms;

type CountedNode = tests::step::CountedNode<Counted>;

/// FLOPs of one `mma.m16n8k16`.
const MMA_FLOPS: u64 = 2 * 16 * 8 * 16;
/// Length of a k-block along the reduction.
const DEPTH: u64 = 32;
/// fp16 values per 16-byte copy.
const CHUNK: u64 = 8;
const HALF_BYTES: u64 = 2;
const FLOAT_BYTES: u64 = 4;

/// The kernels' `struct Conv`.
#[derive(Debug, Clone, Copy)]
struct Conv {
    images: u64,
    /// H and W of the input.
    input: [u64; 2],
    channels: u64,
    filters: u64,
    kernel: [u64; 2],
    stride: u64,
    pad: u64,
    /// P and Q of the output.
    output: [u64; 2],
}

impl Conv {
    /// The convolution of a launch; `None` if it has none.
    fn of(launch: &Launch) -> Option<Self> {
        let bytes = launch.args.iter().find_map(|arg| match arg {
            Arg::Struct { bytes, .. } if bytes.len() == 44 => Some(bytes),
            _ => None,
        })?;
        let words =
            bytes.chunks_exact(4).map(|b| u64::from(u32::from_ne_bytes([b[0], b[1], b[2], b[3]])));
        let words: Vec<u64> = words.collect();
        let [images, h, w, channels, filters, r, s, stride, pad, p, q] = words[..] else {
            unreachable!("eleven words")
        };
        Some(Self {
            images,
            input: [h, w],
            channels,
            filters,
            kernel: [r, s],
            stride,
            pad,
            output: [p, q],
        })
    }

    fn filter_len(&self) -> u64 {
        self.kernel[0] * self.kernel[1] * self.channels
    }

    fn positions(&self) -> u64 {
        self.output[0] * self.output[1]
    }

    /// Bytes of both operands of a kernel's GEMM.
    fn operand_bytes(&self, kernel: &str) -> u64 {
        let x = self.images * self.input[0] * self.input[1] * self.channels;
        let g = self.images * self.positions() * self.filters;
        let w = self.filters * self.filter_len();
        HALF_BYTES
            * match (kernel.contains("grad_weight"), kernel.contains("grad_input")) {
                (true, _) => x + g,
                (_, true) => g + w,
                _ => x + w,
            }
    }

    /// FLOPs for the maximum number of images, as in the op's cost.
    fn flops(&self) -> u64 {
        2 * self.images * self.positions() * self.filters * self.filter_len()
    }

    /// Along an axis, the number of (output position, filter tap) pairs whose input position is
    /// inside the map.
    fn inside(&self, axis: usize) -> u64 {
        let lies = |p: u64, r: u64| {
            let at = p * self.stride + r;
            at >= self.pad && at - self.pad < self.input[axis]
        };
        let taps = |p: u64| (0..self.kernel[axis]).filter(|r| lies(p, *r)).count() as u64;
        (0..self.output[axis]).map(taps).sum()
    }

    /// For one axis and residue class: the number of filter taps, of input positions, and of (input
    /// position, tap) pairs whose output position is inside the map.
    fn class(&self, axis: usize, residue: u64) -> [u64; 3] {
        let (kernel, stride, pad) = (self.kernel[axis], self.stride, self.pad);
        let taps = kernel.saturating_sub(residue).div_ceil(stride);
        let first = (residue + stride - pad % stride) % stride;
        let extent = self.input[axis].saturating_sub(first).div_ceil(stride);
        let lies = |h: u64, tap: u64| {
            let at = h + pad;
            let r = residue + tap * stride;
            at >= r && (at - r) / stride < self.output[axis]
        };
        let pairs = |i: u64| (0..taps).filter(|t| lies(first + i * stride, *t)).count() as u64;
        [taps, extent, (0..extent).map(pairs).sum()]
    }
}

/// One GEMM of a launch; a launch has several if a stride splits it into residue classes.
#[derive(Debug, Clone, Copy)]
struct GemmWork {
    rows: u64,
    columns: u64,
    /// Length of the reduction, and its number of k-blocks.
    k: u64,
    k_blocks: u64,
    /// Valid values of the left operand, which each column of tiles reads, and of the right
    /// operand, which each row reads.
    left: u64,
    right: u64,
}

impl GemmWork {
    /// The GEMMs of a launch, with `images` valid images.
    fn of(launch: &Launch, conv: &Conv, images: u64) -> Vec<Self> {
        let aligned = !launch.kernel.ends_with("unaligned");
        let blocks = |taps: u64, channels: u64| match aligned {
            true => taps * channels.div_ceil(DEPTH),
            false => (taps * channels).div_ceil(DEPTH),
        };
        let (filters, channels) = (conv.filters, conv.channels);
        let padded = filters.next_multiple_of(CHUNK);
        let windows = images * conv.inside(0) * conv.inside(1) * channels;
        let taps = conv.kernel[0] * conv.kernel[1];
        if launch.kernel.contains("grad_weight") {
            let k = images * conv.positions();
            return vec![Self {
                rows: filters,
                columns: conv.filter_len(),
                k,
                k_blocks: k.div_ceil(DEPTH),
                left: k * padded,
                right: windows,
            }];
        }
        if !launch.kernel.contains("grad_input") {
            return vec![Self {
                rows: images * conv.positions(),
                columns: filters,
                k: conv.filter_len(),
                k_blocks: blocks(taps, channels),
                left: windows,
                right: filters * conv.filter_len(),
            }];
        }
        let residues = (0..conv.stride).flat_map(|y| (0..conv.stride).map(move |x| [y, x]));
        let class = |[y, x]: [u64; 2]| {
            let ([r, h, in_y], [s, w, in_x]) = (conv.class(0, y), conv.class(1, x));
            Self {
                rows: images * h * w,
                columns: channels,
                k: r * s * filters,
                k_blocks: blocks(r * s, filters),
                left: images * in_y * in_x * padded,
                right: r * s * filters * channels,
            }
        };
        residues.map(class).collect()
    }

    fn flops(&self) -> u64 {
        2 * self.rows * self.columns * self.k
    }

    fn tiles(&self, tile: u64) -> [u64; 2] {
        [self.rows.div_ceil(tile), self.columns.div_ceil(tile)]
    }

    /// Number of MMAs, for complete tiles and k-blocks.
    fn mma(&self, tile: u64) -> u64 {
        let [rows, columns] = self.tiles(tile);
        rows * columns * self.k_blocks * (tile / 16) * (tile / 8) * (DEPTH / 16)
    }

    /// Number of MMAs that compute an RPN's outputs from complete tiles of the hidden layer: each
    /// step of the reduction covers 16 hidden columns, and there are two output tiles.
    fn rpn_mma(&self, tile: u64) -> u64 {
        let [rows, columns] = self.tiles(tile);
        rows * columns * (tile / 16) * (tile / 16) * 2
    }

    /// Bytes that the tiles read: each column of tiles reads the left operand, each row the right
    /// one.
    fn copied_bytes(&self, tile: u64) -> u64 {
        let [rows, columns] = self.tiles(tile);
        HALF_BYTES * (columns * self.left + rows * self.right)
    }
}

/// Rows (= columns) of a kernel's tile; `None` if the kernel is no GEMM.
fn tile(launch: &Launch) -> Option<u64> {
    let sizes = [("_large", 128), ("_small", 64), ("_unaligned", 64)];
    sizes.into_iter().find(|(name, _)| launch.kernel.ends_with(name)).map(|(_, size)| size)
}

/// Bytes that a GEMM stores: the rows in use of its output, or of the partial sums of every split.
fn stored_bytes(launch: &Launch, products: &[GemmWork]) -> u64 {
    let values: u64 = products.iter().map(|p| p.rows * p.columns).sum();
    let splits = u64::from(launch.grid[2]);
    let is_half = splits == 1 && !launch.kernel.contains("grad_weight");
    splits * values * if is_half { HALF_BYTES } else { FLOAT_BYTES }
}

/// The 3x3 convolutions of an RPN's head, and its anchors per cell: the kernel's `struct Levels`.
fn rpn_levels(launch: &Launch) -> Option<(Vec<Conv>, u64)> {
    /// Pointers to maps and outputs for eight levels, in words.
    const POINTERS: usize = 3 * 8 * 2;
    let bytes = launch.args.iter().find_map(|arg| match arg {
        Arg::Struct { bytes, .. } if launch.kernel.starts_with("rpn_head") => Some(bytes),
        _ => None,
    })?;
    let word = |at: usize| {
        let b = &bytes[(POINTERS + at) * 4..][..4];
        u64::from(u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
    };
    let [levels, images, channels, filters, anchors] = [24, 25, 26, 27, 28].map(word);
    let conv = |level: usize| {
        let size = [word(level), word(8 + level)];
        let (input, output) = (size, size);
        Conv { images, input, channels, filters, kernel: [3, 3], stride: 1, pad: 1, output }
    };
    Some(((0..levels as usize).map(conv).collect(), anchors))
}

/// Checks the counts of an RPN head's launch against its tiles.
fn check_rpn_head(
    node: &CountedNode,
    (convs, anchors): &(Vec<Conv>, u64),
    (launch, counted): &(Launch, Counted),
    tile: u64,
) {
    let products: Vec<GemmWork> =
        convs.iter().flat_map(|conv| GemmWork::of(launch, conv, conv.images)).collect();
    let sum = |of: &dyn Fn(&GemmWork) -> u64| products.iter().map(of).sum::<u64>();
    let mma = counted.requests(Operation::Mma).count;
    assert_eq!(mma, sum(&|p| p.mma(tile) + p.rpn_mma(tile)), "{products:?}");
    let flops = sum(&|p| p.flops() + 2 * p.rows * p.columns * 5 * anchors);
    assert_eq!(flops, node.cost.flops, "FLOPs of the op's cost");
    assert!(mma * MMA_FLOPS >= flops, "fewer FLOPs in MMAs than needed");
    let copied = counted.requests(Operation::CopyFromGlobal).bytes;
    assert_eq!(copied, sum(&|p| p.copied_bytes(tile)), "bytes copied of {products:?}");
    let stored = counted.requests(Operation::StoreGlobal).bytes;
    assert_eq!(stored, sum(&|p| p.rows * 5 * anchors * HALF_BYTES), "bytes stored");
}

/// Checks the counts of a GEMM launch against its tiles; true if it computes fewer images than its
/// shape allows.
fn check(node: &CountedNode, (launch, counted): &(Launch, Counted), tile: u64) -> bool {
    let name = &node.name;
    let conv = Conv::of(launch).unwrap_or_else(|| panic!("{name}: no sizes in {launch:?}"));
    let images = node.images.unwrap_or(conv.images).min(conv.images);
    let products = GemmWork::of(launch, &conv, images);
    let sum = |of: &dyn Fn(&GemmWork) -> u64| products.iter().map(of).sum::<u64>();
    let of = |operation| counted.requests(operation);
    let mma = of(Operation::Mma).count;
    assert_eq!(mma, sum(&|p| p.mma(tile)), "{name}: MMAs of {products:?}");
    assert!(mma * MMA_FLOPS >= sum(&GemmWork::flops), "{name}: too few MMAs for the FLOPs");
    assert_eq!(conv.flops(), node.cost.flops, "{name}: FLOPs of the op's cost");
    if images == conv.images {
        assert!(mma * MMA_FLOPS >= node.cost.flops, "{name}: too few MMAs for the cost");
    }
    let (read, written) = (of(Operation::CopyFromGlobal).bytes, of(Operation::StoreGlobal).bytes);
    if !launch.kernel.ends_with("unaligned") {
        assert_eq!(read, sum(&|p| p.copied_bytes(tile)), "{name}: bytes copied of {products:?}");
    }
    // The op's cost is for fp32, and includes the epilogue's tensors.
    let operands = conv.operand_bytes(launch.kernel);
    assert!(node.cost.bytes >= operands / HALF_BYTES * FLOAT_BYTES, "{name}: the cost's bytes");
    let reads_all =
        images == conv.images && conv.kernel.iter().all(|extent| *extent >= conv.stride);
    if reads_all && !launch.kernel.ends_with("unaligned") {
        assert!(read >= operands, "{name}: {read} bytes copied of {operands}");
    }
    assert_eq!(written, stored_bytes(launch, &products), "{name}: bytes stored");
    images < conv.images
}

fn check_node(node: &CountedNode) -> bool {
    let products: Vec<_> = node.launches.iter().filter_map(|l| Some((l, tile(&l.0)?))).collect();
    let [(product, tile)] = products[..] else {
        panic!("{}: not exactly one GEMM in {:?}", node.name, node.launches)
    };
    let is_partial = match rpn_levels(&product.0) {
        Some(levels) => {
            check_rpn_head(node, &levels, product, tile);
            false
        }
        None => check(node, product, tile),
    };
    // With split-k the last launch stores the output.
    let last = node.launches.last().unwrap_or(product);
    let stored = last.1.requests(Operation::StoreGlobal).bytes;
    let used = match (Conv::of(&product.0), node.images) {
        (Some(conv), Some(images)) if !product.0.kernel.contains("grad_weight") => {
            node.output_bytes / conv.images * images.min(conv.images)
        }
        _ => node.output_bytes,
    };
    assert_eq!(stored, used, "{}: bytes of the output", node.name);
    is_partial
}

/// Every GEMM of a step has the MMAs and bytes of its tiles, and at least the FLOPs of its cost and
/// the bytes of its output.
#[test]
fn step_gemm_work_matches_costs() {
    // The capacity for positives exceeds their number in the images, so the mask head's GEMMs stop
    // at the count.
    let set = ["model.roi.batch_size_per_image=64".to_string()];
    let config = Config::load("micro", &set).expect("the preset loads");
    let gpu = TestGpu::new("A100 COUNT=1");
    let nodes = counted_gemms(&config, Arc::new(gpu.open()), || gpu.take_counted(), Counted::is_of);
    let partial = nodes.iter().filter(|node| check_node(node)).count();
    assert!(partial > 0, "every GEMM had all its images");
}
